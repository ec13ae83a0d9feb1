/** One message of a conversation, as it is kept and as it is sent. */

/** @import {Report} from "../shared/origins.js" */

/**
 * @typedef {{id: string, name: string, arguments: string}} Call
 * @typedef {{name: string, text: string}} TextFile
 * @typedef {{total: number, cache: number, processed: number}} Progress
 * @typedef {"user" | "assistant" | "tool"} Role
 * @typedef {"done" | "writing" | "cut"} State `cut`: stopped, broken off or failed, so that it can be continued
 * @typedef {{id: string, conversation: string, parent: string | null, role: Role, content: string, created: number,
 *   state: State, reasoning?: string, calls?: Call[], callId?: string, files?: TextFile[], report?: Report,
 *   problem?: string, progress?: Progress, finish?: string, sent?: string[]}} Message
 *   `sent` names the messages that its request was made of, in their order; the system prompt is `system`.
 */

/**
 * @param {Pick<Message, "conversation" | "parent" | "role" | "content"> & Partial<Message>} fields
 * @returns {Message}
 */
export const newMessage = (fields) => ({ id: crypto.randomUUID(), created: Date.now(), state: "done", ...fields });

/**
 * The message in OpenAI's form.
 * @param {Message} message
 */
export function asSent(message) {
  if (message.role === "tool") return { role: "tool", content: message.content, tool_call_id: message.callId };
  if (message.role === "user")
    return { role: "user", content: [message.content, ...(message.files ?? []).map(fenced)].join("\n\n") };
  const calls = message.calls?.map((call) => ({
    id: call.id,
    type: "function",
    function: { name: call.name, arguments: call.arguments },
  }));
  return { role: "assistant", content: message.content, ...(calls?.length ? { tool_calls: calls } : {}) };
}

/**
 * A file as a code block, whose fence is longer than any in it.
 * @param {TextFile} file
 */
function fenced(file) {
  const longest = Math.max(2, ...[...file.text.matchAll(/`+/g)].map(([ticks]) => ticks.length));
  const fence = "`".repeat(longest + 1);
  return `${file.name}\n${fence}\n${file.text}\n${fence}`;
}
