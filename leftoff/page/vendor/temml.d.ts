// The part of Temml that the page uses, for the type checker.
declare const temml: { renderToString(source: string, options: object): string };
export default temml;
