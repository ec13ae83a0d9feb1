/** The models of the server, and who of them is loaded. Where there are several, that is asked again and again. */

import { Cell, useCell } from "./cell.js";
import { useEffect, useState } from "./html.js";
import { useServer } from "./server.js";

/**
 * @typedef {"loaded" | "loading" | "sleeping" | "unloaded"} Status `sleeping`: it keeps what it has read;
 *   `unloaded`: nobody has asked it since the server started
 * @typedef {{n_ctx: number, n_params: number, size: number, vision: boolean, pdf: boolean, ranks?: boolean}} Meta
 *   `ranks` is said of encoders alone
 * @typedef {{id: string, status: {value: Status}, meta?: Meta}} Model `meta` is known of those that were loaded once
 */

const ASK_MS = 2000;

/** Those that write, as last heard; the first answers those who choose none. */
export const models = new Cell(/** @type {Model[]} */ ([]));

/**
 * @param {unknown} [occasion] they are asked for again when it changes
 * @returns {{models: Model[], problem: string}}
 */
export function useModels(occasion) {
  const [tick, setTick] = useState(0);
  const { answer, problem } = useServer("/v1/models", `${occasion} ${tick}`);
  const known = useCell(models);
  useEffect(() => {
    const all = /** @type {{data: Model[]} | null} */ (answer)?.data;
    if (all) models.value = all.filter(({ meta }) => meta?.ranks === undefined);
  }, [answer]);
  const isOne = known.length < 2;
  useEffect(() => {
    if (isOne) return;
    const timer = setInterval(() => document.hidden || setTick((before) => before + 1), ASK_MS);
    return () => clearInterval(timer);
  }, [isOne]);
  return { models: known, problem };
}

/**
 * @param {Model[]} all
 * @param {string} id
 * @returns {Model} the first, where none is chosen or the chosen one is not there any more
 */
export const modelOf = (all, id) => all.find((each) => each.id === id) ?? all[0];

/**
 * The name of a model in the query of a route of the cache: one model alone is meant anyway.
 * @param {string | undefined} model
 */
export const query = (model) => (model ? `?model=${encodeURIComponent(model)}` : "");
