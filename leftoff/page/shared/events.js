/** Server-sent events over `fetch`: unlike `EventSource`, it sends a key, and a body. */

/** @typedef {{name: string, data: string}} ServerEvent */

/**
 * @param {Response} response
 * @returns {AsyncGenerator<ServerEvent>}
 */
export async function* eventsOf(response) {
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      waiting += value;
      const blocks = waiting.split("\n\n");
      waiting = blocks.pop() ?? "";
      for (const event of blocks.map(parsed)) if (event.data) yield event;
    }
  } finally {
    void reader.cancel().catch(() => {}); // who reads no further holds no slot
  }
}

/**
 * The chunks of a streamed chat completion, up to its end. Throws what the server says went wrong.
 * @param {Response} response
 * @returns {AsyncGenerator<any>}
 */
export async function* chunksOf(response) {
  for await (const { data } of eventsOf(response)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Error(chunk.error.message);
    yield chunk;
  }
}

/**
 * @param {string} block a comment, which keeps a silent connection open, has no data
 * @returns {ServerEvent}
 */
function parsed(block) {
  const event = { name: "message", data: "" };
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) event.name = line.slice(7);
    else if (line.startsWith("data: ")) event.data += line.slice(6);
  }
  return event;
}
