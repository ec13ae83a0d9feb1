/** Names for conversations and messages. `crypto.randomUUID` is there only over HTTPS and on the machine itself. */

export const newId = () =>
  [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
