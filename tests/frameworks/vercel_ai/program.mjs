// An agent of the Vercel AI SDK, which traces itself.
import { createOpenAI } from "@ai-sdk/openai";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { BatchSpanProcessor, NodeTracerProvider } from "@opentelemetry/sdk-trace-node";
import { generateText, stepCountIs, tool } from "ai";
import { z } from "zod";

const exporter = new OTLPTraceExporter({ url: `${process.env.RECEIVER_URL}/v1/traces` });
const provider = new NodeTracerProvider({
  resource: resourceFromAttributes({ "service.name": "framework" }),
  spanProcessors: [new BatchSpanProcessor(exporter, { scheduledDelayMillis: 200 })],
});
provider.register();
const openai = createOpenAI({ baseURL: process.env.MODEL_URL, apiKey: "none" });
await generateText({
  model: openai.chat("gpt-4o"),
  prompt: "find the key",
  tools: {
    search: tool({
      description: "Search for something.",
      inputSchema: z.object({ query: z.string() }),
      execute: async ({ query }) => `nothing at ${query}`,
    }),
  },
  stopWhen: stepCountIs(20),
  experimental_telemetry: { isEnabled: true, functionId: "searcher" },
});
await provider.forceFlush();
await provider.shutdown();
