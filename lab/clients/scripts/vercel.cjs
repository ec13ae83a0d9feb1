// The Vercel AI SDK: node vercel.cjs openai-compatible|openai|anthropic URL QUESTION...
const { generateText, tool, stepCountIs } = require("ai");
const { z } = require("zod");

const NOTES = {
  "todo.txt": "Buy bread, water the plants, and call Clara about the room on Monday.",
  "plan.txt": "First the roof, then the windows, then the garden. Hugo brings the ladder on Friday.",
};
const read_note = tool({
  description: "Reads one of the user's notes.",
  inputSchema: z.object({ name: z.enum(Object.keys(NOTES)).describe("The name of the note.") }),
  execute: async ({ name }) => NOTES[name],
});

function modelOf(provider, url) {
  if (provider === "openai") {
    // connect: openai
    const { createOpenAI } = require("@ai-sdk/openai");
    return createOpenAI({ baseURL: `${url}/v1`, apiKey: "none" })("local");
    // end
  }
  if (provider === "anthropic") {
    // connect: anthropic
    const { createAnthropic } = require("@ai-sdk/anthropic");
    return createAnthropic({ baseURL: `${url}/v1`, apiKey: "none" })("local");
    // end
  }
  // connect: openai-compatible
  const { createOpenAICompatible } = require("@ai-sdk/openai-compatible");
  return createOpenAICompatible({ name: "leftoff", baseURL: `${url}/v1` })("local");
  // end
}

async function main([provider, url, ...questions]) {
  const model = modelOf(provider, url);
  const messages = [];
  for (const content of questions) {
    messages.push({ role: "user", content });
    const reply = await generateText({
      model,
      system: "You are a helpful assistant with access to the user's notes.",
      messages,
      tools: { read_note },
      stopWhen: stepCountIs(4),
      maxOutputTokens: 400,
    });
    messages.push(...reply.responseMessages);
    console.log(reply.text);
  }
}

main(process.argv.slice(2));
