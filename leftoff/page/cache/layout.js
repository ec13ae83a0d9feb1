/** Where the nodes of a tree are drawn: a conversation goes on in its row, and each branch begins one below. */

/** @import {TreeNode} from "./feed.js" */
/** @typedef {{node: TreeNode, row: number, parentRow: number, level: number, children: TreeNode[]}} Placed */

/**
 * @param {TreeNode[]} nodes parents first
 * @returns {Placed[]} from the top down
 */
export function placed(nodes) {
  const children = Map.groupBy(nodes, (node) => node.parent);
  for (const group of children.values()) group.sort((one, other) => one.age_s - other.age_s);
  /** @type {Placed[]} */
  const found = [];
  let rows = 0;
  /** @type {{node: TreeNode, row: number | null, parentRow: number, level: number}[]} */
  const waiting = roots(children).map((node) => ({ node, row: null, parentRow: -1, level: 1 }));
  while (waiting.length) {
    const { node, row: given, parentRow, level } = /** @type {typeof waiting[0]} */ (waiting.pop());
    const row = given ?? rows++;
    const own = children.get(node.id) ?? [];
    found.push({ node, row, parentRow, level, children: own });
    // the one used last goes on in this row: it is placed first
    for (let index = own.length - 1; index >= 0; index -= 1) {
      waiting.push({ node: own[index], row: index ? null : row, parentRow: row, level: level + 1 });
    }
  }
  return found;
}

/** @param {Map<string | null, TreeNode[]>} children */
const roots = (children) => [...(children.get(null) ?? [])].reverse();

/**
 * The node that an arrow key leads to.
 * @param {Placed[]} all
 * @param {string} id
 * @param {string} key
 * @returns {string | undefined}
 */
export function neighbour(all, id, key) {
  const at = all.find((each) => each.node.id === id);
  if (!at) return all[0]?.node.id;
  if (key === "ArrowRight") return at.children[0]?.id;
  if (key === "ArrowLeft") return at.node.parent ?? undefined;
  const step = key === "ArrowDown" ? 1 : -1;
  const row = all.filter((each) => each.row === at.row + step);
  const near = row.findLast((each) => each.node.start <= at.node.start) ?? row[0];
  return near?.node.id;
}

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
