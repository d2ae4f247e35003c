// A span processor, last of the provider's: it announces agents to `tidegauge serve` when they start.
import { ROOT_CONTEXT, trace } from "@opentelemetry/api";

export class Announcer {
  onStart(span) {
    if (!/^invoke_agent|^ai\.(generateText|streamText)$/.test(span.name)) return;
    const context = span.spanContext();
    if (!(context.traceFlags & 1)) return;
    const id = "tidegauge.announce", parent = span.parentSpanContext?.spanId ?? span.parentSpanId;
    const agent = span.attributes["gen_ai.agent.name"] ?? span.attributes["ai.telemetry.functionId"];
    const about = { span_id: context.spanId, parent_id: parent, name: span.name, agent };
    const attributes = Object.fromEntries(
      Object.entries(about).filter(([, value]) => value).map(([key, value]) => [`${id}.${key}`, value]));
    const options = { attributes, startTime: span.startTime };
    trace.getTracer(id).startSpan(id, options, trace.setSpan(ROOT_CONTEXT, span)).end(span.startTime);
  }
  onEnd() {}
  async shutdown() {}
  async forceFlush() {}
}
