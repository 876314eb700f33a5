/**
 * The schemas of an SDK client with the names of members written out where they are keys: `{ [_hH]: 1 }` becomes
 * `{ "httpHeader": 1 }`. A key that is looked up could have an effect, for all esbuild knows, so that it keeps the
 * schemas of every operation of the service; without them it keeps those in use.
 */
export function withLiteralKeys(schemas: string): string {
  const names = new Map(
    Array.from(schemas.matchAll(/^const (_\w+) = ("[^"\\]*");$/gm), ([, name = '', literal = '']) => [name, literal]),
  );
  return schemas.replace(/\[(_\w+)\](?=: )/g, (key, name: string) => names.get(name) ?? key);
}
