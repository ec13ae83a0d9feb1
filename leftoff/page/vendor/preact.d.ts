// The part of preact that the page uses, for the type checker.
export type VNode = { type: unknown; props: Record<string, unknown> };
export type ComponentChildren = unknown;
export function h(type: unknown, props: unknown, ...children: unknown[]): VNode;
export function render(node: unknown, parent: Element): void;
