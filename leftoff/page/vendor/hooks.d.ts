// The part of preact/hooks that the page uses, for the type checker.
type Undo = undefined | void | (() => void);
export function useState<T>(first: T | (() => T)): [T, (next: T | ((before: T) => T)) => void];
export function useReducer<S, A>(step: (state: S, action: A) => S, first: S): [S, (action: A) => void];
export function useEffect(effect: () => Undo, inputs?: unknown[]): void;
export function useLayoutEffect(effect: () => Undo, inputs?: unknown[]): void;
export function useMemo<T>(make: () => T, inputs: unknown[]): T;
export function useRef<T>(first: T): { current: T };
export function useId(): string;
