/** The turn that the user looks at: each message of its prompt shows where its tokens came from. */

import { Cell } from "../shared/cell.js";

/** @import {Origins, MessageOrigins} from "../shared/origins.js" */
/** @import {Message} from "./message.js" */

/** By the id of the message; null while no turn is looked at. */
export const inspected = new Cell(/** @type {Map<string, Origins> | null} */ (null));

/** @param {Message} turn a reply with a report */
export function inspect(turn) {
  inspected.value = turn.report?.messages ? originsOf(turn, turn.report.messages) : null;
}

export function leave() {
  inspected.value = null;
}

/**
 * The report lists the messages of the prompt, and last what opens the reply. Where the server left some out, because
 * they did not fit, those that were sent last are the ones that it lists.
 * @param {Message} turn
 * @param {MessageOrigins[]} listed
 */
function originsOf(turn, listed) {
  const ids = [...(turn.sent ?? []).filter((id) => id !== turn.id), turn.id].slice(-listed.length);
  return new Map(ids.map((id, index) => [id, listed[listed.length - ids.length + index].origins]));
}
