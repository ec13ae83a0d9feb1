declare const grammar: (core: unknown) => object;
export default grammar;
