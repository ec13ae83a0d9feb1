/** One message of a conversation, as it is kept and as it is sent. */

import { newId } from "../shared/id.js";
import { asPart } from "./attachments.js";

/** @import {Report} from "../shared/origins.js" */

/**
 * @typedef {{id: string, name: string, arguments: string}} Call
 * @typedef {{name: string, text?: string, blob?: Blob}} Attachment a text, or a picture or PDF as the file that it is
 * @typedef {{total: number, cache: number, processed: number}} Progress
 * @typedef {"user" | "assistant" | "tool"} Role
 * @typedef {"done" | "writing" | "cut"} State `cut`: stopped, broken off or failed, so that it can be continued
 * @typedef {{id: string, conversation: string, parent: string | null, role: Role, content: string, created: number,
 *   state: State, model?: string, reasoning?: string, calls?: Call[], callId?: string, files?: Attachment[], report?: Report,
 *   problem?: string, progress?: Progress, finish?: string, sent?: string[]}} Message
 *   `model` wrote it; `sent` names the messages that its request was made of, in their order; the system prompt is `system`.
 */

/**
 * @param {Pick<Message, "conversation" | "parent" | "role" | "content"> & Partial<Message>} fields
 * @returns {Message}
 */
export const newMessage = (fields) => ({ id: newId(), created: Date.now(), state: "done", ...fields });

/**
 * The message in OpenAI's form.
 * @param {Message} message
 */
export async function asSent(message) {
  if (message.role === "tool") return { role: "tool", content: message.content, tool_call_id: message.callId };
  if (message.role === "user") return { role: "user", content: await contentOf(message) };
  const calls = message.calls?.map((call) => ({
    id: call.id,
    type: "function",
    function: { name: call.name, arguments: call.arguments },
  }));
  return { role: "assistant", content: message.content, ...(calls?.length ? { tool_calls: calls } : {}) };
}

/**
 * Pictures and documents come before the words about them, texts behind.
 * @param {Message} message
 */
async function contentOf({ content, files }) {
  const parts = await Promise.all((files ?? []).map(asPart));
  const others = parts.filter((part) => typeof part !== "string");
  const text = [content, ...parts.filter((part) => typeof part === "string")].join("\n\n");
  return others.length ? [...others, { type: "text", text }] : text;
}
