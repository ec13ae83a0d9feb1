/** Where the nodes of a tree are drawn: a conversation goes on in its row, each branch begins one below, and of many
 * branches those that are small and were not used lately are folded. */

/** @import {TreeNode} from "./feed.js" */
/**
 * @typedef {{parent: string | null, start: number, num: number, tokens: number, found: number, isOpen: boolean}} Fold
 * @typedef {{id: string, node: TreeNode | null, fold: Fold | null, row: number, parentRow: number, level: number,
 *   children: string[], isLast: boolean}} Placed a node, or the branches that are folded; `isLast`: nothing follows in
 *   its row
 * @typedef {{tokens: number, found: number}} Sum of a node and all below it
 */

const SHOWN_LATEST = 5;
const SHOWN_LARGEST = 5;
const SHOWN_FOUND = 30;

/**
 * @param {TreeNode[]} nodes parents first
 * @param {Set<string | null>} unfolded parents of which all branches are shown
 * @returns {Placed[]} from the top down
 */
export function placed(nodes, unfolded) {
  const children = Map.groupBy(nodes, (node) => node.parent);
  const sums = summed(nodes);
  /** @type {Placed[]} */
  const found = [];
  let rows = 0;
  /** @type {(Pick<Placed, "node" | "fold" | "parentRow" | "level"> & {row: number | null})[]} */
  const waiting = [];
  const wait = (/** @type {string | null} */ parent, /** @type {number} */ parentRow, /** @type {number} */ level) => {
    const { shown, fold } = parted(children.get(parent) ?? [], sums, unfolded.has(parent));
    if (fold) waiting.push({ node: null, fold, row: null, parentRow, level });
    for (const node of shown.toReversed()) {
      // the one used last goes on in the row of its parent: it is placed first
      waiting.push({
        node,
        fold: null,
        row: parent !== null && node === shown[0] ? parentRow : null,
        parentRow,
        level,
      });
    }
    return shown.map((node) => node.id);
  };
  wait(null, -1, 1);
  while (waiting.length) {
    const { node, fold, row: given, parentRow, level } = /** @type {typeof waiting[0]} */ (waiting.pop());
    const row = given ?? rows++;
    const below = node ? wait(node.id, row, level + 1) : [];
    const id = node?.id ?? `fold ${fold?.parent}`;
    found.push({ id, node, fold, row, parentRow, level, children: below, isLast: below.length === 0 });
  }
  return found;
}

/**
 * @param {TreeNode[]} nodes parents first
 * @returns {Map<string, Sum>}
 */
function summed(nodes) {
  const sums = new Map(nodes.map((node) => [node.id, { tokens: node.end - node.start, found: node.is_found ? 1 : 0 }]));
  for (const { id, parent } of nodes.toReversed()) {
    const [own, above] = [/** @type {Sum} */ (sums.get(id)), parent === null ? undefined : sums.get(parent)];
    if (above) [above.tokens, above.found] = [above.tokens + own.tokens, above.found + own.found];
  }
  return sums;
}

/**
 * The branches that are shown, the one used last first, and what is folded of the others.
 * @param {TreeNode[]} siblings
 * @param {Map<string, Sum>} sums
 * @param {boolean} isOpen
 * @returns {{shown: TreeNode[], fold: Fold | null}}
 */
function parted(siblings, sums, isOpen) {
  const of = (/** @type {TreeNode} */ node) => /** @type {Sum} */ (sums.get(node.id));
  const latest = siblings.toSorted((one, other) => one.age_s - other.age_s);
  const largest = siblings.toSorted((one, other) => of(other).tokens - of(one).tokens);
  const chosen = new Set([
    ...latest.slice(0, SHOWN_LATEST),
    ...largest.slice(0, SHOWN_LARGEST),
    ...latest.filter((node) => of(node).found).slice(0, SHOWN_FOUND),
  ]);
  const rest = siblings.filter((node) => !chosen.has(node));
  if (rest.length < 2) return { shown: latest, fold: null };
  const total = (/** @type {keyof Sum} */ name) => rest.reduce((sum, node) => sum + of(node)[name], 0);
  const { parent, start } = siblings[0];
  const fold = { parent, start, num: rest.length, tokens: total("tokens"), found: total("found"), isOpen };
  return { shown: isOpen ? latest : latest.filter((node) => chosen.has(node)), fold };
}

/**
 * What an arrow key leads to.
 * @param {Placed[]} all
 * @param {string} id
 * @param {string} key
 * @returns {string | undefined}
 */
export function neighbour(all, id, key) {
  const at = all.find((each) => each.id === id);
  if (!at) return all[0]?.id;
  if (key === "ArrowRight") return at.children[0];
  if (key === "ArrowLeft") return (at.node ?? at.fold)?.parent ?? undefined;
  const step = key === "ArrowDown" ? 1 : -1;
  const row = all.filter((each) => each.row === at.row + step);
  const near = row.findLast((each) => startOf(each) <= startOf(at)) ?? row[0];
  return near?.id;
}

/** @param {Placed} placed */
export const startOf = ({ node, fold }) => /** @type {TreeNode | Fold} */ (node ?? fold).start;

/**
 * What the path to a node holds in bytes.
 * @param {TreeNode[]} nodes
 * @param {TreeNode} node
 */
export function pathOf(nodes, node) {
  const byId = new Map(nodes.map((each) => [each.id, each]));
  const path = [];
  for (
    let at = /** @type {TreeNode | undefined} */ (node);
    at;
    at = at.parent === null ? undefined : byId.get(at.parent)
  )
    path.push(at);
  return path.reverse();
}
