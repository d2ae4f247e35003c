// Replaces contents in spans of the AI SDK (up to version 6) by digests: equal contents have equal digests.
import { createHmac } from "node:crypto";

const sorted = (value) => value && typeof value === "object" && !Array.isArray(value)
  ? Object.fromEntries(Object.keys(value).sort().map((key) => [key, sorted(value[key])]))
  : Array.isArray(value) ? value.map(sorted) : value;
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
    return /^ai\.(prompt|response\.(text|object|reasoning)|toolCall\.(args|result))/.test(name)
      ? this.digest(value) : value;
  }
  export(spans, done) {
    this.exporter.export(spans.map((span) => Object.create(span, {
      attributes: { value: Object.fromEntries(
        Object.entries(span.attributes).map(([name, value]) => [name, this.attribute(name, value)])) },
      events: { value: [] },
      status: { value: { code: span.status.code } } })), done);
  }
  shutdown() { return this.exporter.shutdown(); }
  forceFlush() { return this.exporter.forceFlush?.() ?? Promise.resolve(); }
}
