/** A conversation: a tree of messages, of which one path is shown. Every edit and every new reply is a branch. */

import { newId } from "../shared/id.js";

/** @import {Message} from "./message.js" */

/**
 * @typedef {{model: string, system: string, temperature: string, top_p: string, top_k: string, min_p: string, repeat_penalty: string,
 *   max_tokens: string, seed: string, schema: string, tools: string, thinking: "" | "on" | "off"}} Settings as typed
 * @typedef {{id: string, title: string, created: number, updated: number, leaf: string | null, settings: Settings}} Meta
 */

/** @type {Settings} */
export const NO_SETTINGS = {
  model: "", // the first of the server
  system: "",
  temperature: "",
  top_p: "",
  top_k: "",
  min_p: "",
  repeat_penalty: "",
  max_tokens: "",
  seed: "",
  schema: "",
  tools: "",
  thinking: "",
};

const TITLE_LENGTH = 120;

/** Not to be changed in place: each change gives a new one, which shares the messages. */
export class Conversation {
  /** @type {Map<string | null, Message[]> | undefined} */
  #children;
  /** @type {Set<string | undefined> | undefined} */
  #models;

  /**
   * @param {Meta} meta
   * @param {Map<string, Message>} messages
   */
  constructor(meta, messages) {
    this.meta = meta;
    this.messages = messages;
  }

  /** @param {Settings} settings */
  static begun(settings) {
    const now = Date.now();
    const meta = { id: newId(), title: "", created: now, updated: now, leaf: null, settings };
    return new Conversation(meta, new Map());
  }

  /** The messages that are shown, from the first to the last. */
  get path() {
    return this.pathTo(this.meta.leaf);
  }

  /** @param {string | null} id */
  pathTo(id) {
    /** @type {Set<Message>} */
    const path = new Set(); // in an archive that somebody wrote by hand, messages may be parents of each other
    let at = id && this.messages.get(id);
    while (at && !path.has(at)) {
      path.add(at);
      at = at.parent && this.messages.get(at.parent);
    }
    return [...path].reverse();
  }

  /** @param {string | null} parent */
  childrenOf(parent) {
    this.#children ??= Map.groupBy(this.messages.values(), (message) => message.parent);
    return this.#children.get(parent) ?? [];
  }

  /** Whether its replies were written by different models, as far as that is known. */
  get hasSeveralModels() {
    this.#models ??= new Set([...this.messages.values()].filter(({ model }) => model).map(({ model }) => model));
    return this.#models.size > 1;
  }

  /** @param {Message} message */
  siblingsOf(message) {
    return this.childrenOf(message.parent);
  }

  /**
   * With one message more or changed, which is shown.
   * @param {Message} message
   */
  with(message) {
    const isNew = !this.messages.has(message.id);
    const messages = new Map(this.messages).set(message.id, message);
    const title = this.meta.title || (message.role === "user" ? titleOf(message.content) : "");
    const leaf = isNew ? message.id : this.meta.leaf;
    return new Conversation({ ...this.meta, title, leaf, updated: Date.now() }, messages);
  }

  /**
   * With the branch of a message shown, up to its newest end.
   * @param {string} id
   */
  showing(id) {
    let leaf = id;
    for (let next = this.childrenOf(leaf); next.length; next = this.childrenOf(leaf)) leaf = next[next.length - 1].id;
    return new Conversation({ ...this.meta, leaf }, this.messages);
  }

  /**
   * As another tab has kept it. The branch that is shown stays, and goes on with what the other has added.
   * @param {Conversation} kept
   * @param {boolean} isWritten here: these messages are newer
   */
  beside(kept, isWritten) {
    const { leaf } = this.meta;
    const all = new Conversation(kept.meta, new Map([...kept.messages, ...(isWritten ? this.messages : [])]));
    return all.path.some(({ id }) => id === leaf) ? all : all.changed({ leaf });
  }

  /** @param {Partial<Meta>} changes */
  changed(changes) {
    return new Conversation({ ...this.meta, ...changes }, this.messages);
  }
}

/** @param {string} text */
const titleOf = (text) => text.trim().split("\n")[0].slice(0, TITLE_LENGTH);
