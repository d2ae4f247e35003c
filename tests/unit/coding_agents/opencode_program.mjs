// Runs the plugin of opencode as opencode does: a call, its result, and the end of the session.
import { Tidegauge } from "./plugin.mjs"

const hangs = process.argv[2] === "hangs"
const aborted = []
const abort = async (given) => {
  aborted.push(given.path.id)
  if (hangs) await new Promise(() => {})
}
const client = { session: { abort } }
const hooks = await Tidegauge({ client, directory: "/home/dev/shop" })
const call = { tool: "bash", sessionID: "s1", callID: "c1" }
const began = Date.now()
let error = null
try {
  await hooks["tool.execute.before"](call, { args: { command: "ls" } })
} catch (thrown) {
  error = thrown.message
}
const output = { title: "", output: "README.md", metadata: { exit: 0 } }
await hooks["tool.execute.after"]({ ...call, args: { command: "ls" } }, output)
await hooks["chat.message"]({ sessionID: "s1" }, undefined)
await hooks.event({ event: { type: "session.idle", properties: { sessionID: "s1" } } })
await hooks.event({})
const seconds = (Date.now() - began) / 1000
process.stdout.write(JSON.stringify({ error, output: output.output, aborted, seconds }))
process.exit(0)
