/** The messages of a conversation, of which only those near the window are drawn: thousands scroll like ten. */

import { html, useEffect, useLayoutEffect, useRef, useState } from "../shared/html.js";
import { MessageView } from "./message_view.js";
import { SystemView } from "./system_view.js";

/** @import {Message} from "./message.js" */
/** @import {Conversation} from "./conversation.js" */

const MARGIN_PX = 1000; // drawn above and below what is seen
const NEAR_PX = 400; // less is drawn there before more is
const GUESSED_PX = 120; // of a message that was not drawn yet
const NEAR_END_PX = 60;

/** @typedef {{first: number, end: number, above: number, below: number}} Drawn messages [first, end), and the space around */

/** @param {{conversation: Conversation}} props */
export function Thread({ conversation }) {
  const path = conversation.path;
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const heights = useRef(/** @type {Map<string, number>} */ (new Map()));
  const isAtEnd = useRef(true);
  const last = path.at(-1);
  const [scroll, setScroll] = useState(/** @type {number | null} */ (null)); // null: at the end
  const drawn = around(path, heights.current, scroll, box.current?.clientHeight ?? 800);

  const goToEnd = () => {
    isAtEnd.current = true;
    setScroll(null);
  };
  useLayoutEffect(goToEnd, [conversation.meta.id]);
  useLayoutEffect(() => {
    if (last?.state === "writing") goToEnd();
  }, [last?.id]);
  useLayoutEffect(() => {
    if (isAtEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  });
  useEffect(() => {
    const element = /** @type {HTMLElement} */ (box.current);
    const measured = new ResizeObserver((entries) => {
      for (const { target } of entries) {
        const { id } = /** @type {HTMLElement} */ (target).dataset;
        if (id) heights.current.set(id, /** @type {HTMLElement} */ (target).offsetHeight);
      }
      if (isAtEnd.current) element.scrollTop = element.scrollHeight;
    });
    const watch = () => {
      for (const child of element.querySelectorAll("[data-id]")) measured.observe(child);
    };
    const added = new MutationObserver(watch);
    added.observe(element, { childList: true, subtree: true });
    watch();
    return () => {
      measured.disconnect();
      added.disconnect();
    };
  }, []);

  const onScroll = () => {
    const element = /** @type {HTMLElement} */ (box.current);
    isAtEnd.current = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_END_PX;
    const near = around(path, heights.current, element.scrollTop, element.clientHeight, NEAR_PX);
    if (near.first < drawn.first || near.end > drawn.end) setScroll(element.scrollTop);
  };
  return html`
    <section class="thread" ref=${box} onScroll=${onScroll} aria-label="Messages" tabindex="0">
      <${SystemView} text=${conversation.meta.settings.system} />
      <div class="space" style=${{ height: `${drawn.above}px` }}></div>
      ${path
        .slice(drawn.first, drawn.end)
        .map((message) => html`<${MessageView} key=${message.id} message=${message} conversation=${conversation} />`)}
      <div class="space" style=${{ height: `${drawn.below}px` }}></div>
    </section>`;
}

/**
 * @param {Message[]} path
 * @param {Map<string, number>} heights
 * @param {number | null} scroll
 * @param {number} visible
 * @param {number} margin
 * @returns {Drawn}
 */
function around(path, heights, scroll, visible, margin = MARGIN_PX) {
  const tops = [0];
  for (const { id } of path) tops.push(tops[tops.length - 1] + (heights.get(id) ?? GUESSED_PX));
  const total = tops[path.length];
  const from = (scroll ?? Math.max(0, total - visible)) - margin;
  const to = (scroll ?? total) + visible + margin;
  let first = 0;
  while (first < path.length && tops[first + 1] < from) first += 1;
  let end = first;
  while (end < path.length && tops[end] < to) end += 1;
  return { first, end, above: tops[first], below: total - tops[end] };
}
