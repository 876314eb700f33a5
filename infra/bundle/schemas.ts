/**
 * The schemas of an SDK client with literal keys: `{ [_hH]: 1 }` becomes `{ "httpHeader": 1 }`. To esbuild a computed
 * key may have a side effect, so it keeps the schemas of every operation. With literal keys it keeps only those in use.
 */
export function withLiteralKeys(schemas: string): string {
  const names = new Map(
    Array.from(schemas.matchAll(/^const (_\w+) = ("[^"\\]*");$/gm), ([, name = '', literal = '']) => [name, literal]),
  );
  return schemas.replace(/\[(_\w+)\](?=: )/g, (key, name: string) => names.get(name) ?? key);
}
