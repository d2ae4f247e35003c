// Replaces contents in spans of the AI SDK (up to version 6) by digests: equal contents have equal digests.
import { createHmac } from "node:crypto";

const sorted = (value) => value && typeof value === "object" && !Array.isArray(value)
  ? Object.fromEntries(Object.keys(value).sort().map((key) => [key, sorted(value[key])]))
  : Array.isArray(value) ? value.map(sorted) : value;
// What holds no contents; every other text is replaced.
const known = new RegExp("^(ai\\.(operationId|model\\.(id|provider)|telemetry\\.(functionId|metadata\\.(session|thread)Id)|toolCall\\.(id|name)" +
  "|response\\.(id|model|timestamp|finishReason))|operation\\.name|resource\\.name|tidegauge\\.(agent|task_group|memory)" +
  "|gen_ai\\.(system|operation\\.name|(request|response)\\.(id|model|finish_reasons)|tool\\.(name|type|call\\.id)" +
  "|agent\\.(id|name)|conversation\\.id|provider\\.name)|(http|url|server|client|network|code|rpc)\\.(?!.*(body|query|fragment|full|url|target)$).+)$");
const parsed = (text) => { try { return JSON.parse(text); } catch { return text; } };

export class RedactingExporter {
  constructor(exporter, key) { Object.assign(this, { exporter, key }); }
  digest(value) {
    const text = JSON.stringify(sorted(typeof value === "string" ? parsed(value) : value));
    return "sha:" + createHmac("sha256", this.key).update(text).digest("hex").slice(0, 32);
  }
  attribute(name, value) {
    if (name === "ai.response.toolCalls")
      return JSON.stringify(parsed(value).map((call) => ({
        toolCallId: call.toolCallId, toolName: call.toolName, input: this.digest(call.input ?? call.args) })));
    return ["number", "boolean"].includes(typeof value) || known.test(name) ? value : this.digest(value);
  }
  export(spans, done) {
    this.exporter.export(spans.map((span) => Object.create(span, {
      attributes: { value: Object.fromEntries(
        Object.entries(span.attributes).map(([name, value]) => [name, this.attribute(name, value)])) },
      events: { value: [] },
      links: { value: [] },
      status: { value: { code: span.status.code } } })), done);
  }
  shutdown() { return this.exporter.shutdown(); }
  forceFlush() { return this.exporter.forceFlush?.() ?? Promise.resolve(); }
}
