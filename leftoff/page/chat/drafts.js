/** What was typed and not sent yet, for each conversation. The text outlives the page; files do not. */

/** @import {Conversation} from "./conversation.js" */
/** @import {Attachment} from "./message.js" */
/** @typedef {{text: string, files: Attachment[]}} Draft */

const STORED = "leftoff-draft-";
const STORE_PAUSE_MS = 300;

/** @type {Map<string, Draft>} */
const drafts = new Map();
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

/** @param {Conversation} conversation one without messages is the new one: its id does not outlive the page */
const nameOf = ({ meta, messages }) => (messages.size ? meta.id : "new");

/**
 * @param {Conversation} conversation
 * @returns {Draft}
 */
export function draftOf(conversation) {
  const name = nameOf(conversation);
  return drafts.get(name) ?? { text: localStorage.getItem(STORED + name) ?? "", files: [] };
}

/** @param {Conversation} conversation */
export function hasDraft(conversation) {
  const { text, files } = draftOf(conversation);
  return text.trim() !== "" || files.length > 0;
}

/**
 * @param {Conversation} conversation
 * @param {Partial<Draft>} changes
 */
export function keepDraft(conversation, changes) {
  drafts.set(nameOf(conversation), { ...draftOf(conversation), ...changes });
  clearTimeout(timer);
  timer = setTimeout(store, STORE_PAUSE_MS);
}

/** @param {string} id of a conversation that is deleted */
export function forgetDraft(id) {
  drafts.delete(id);
  localStorage.removeItem(STORED + id);
}

function store() {
  for (const [name, { text }] of drafts) {
    try {
      if (text) localStorage.setItem(STORED + name, text);
      else localStorage.removeItem(STORED + name);
    } catch {
      // the browser gives no more room: it stays until the page is closed
    }
  }
}
addEventListener("pagehide", store);
