import { decodedId } from '../functions/base/key-segment.ts';
import { printable } from '../functions/base/printable.ts';
import { STAGE_KEY } from '../functions/uploads/upload.ts';

/**
 * How a person names an upload with this key: by the key, or in a later stage by the key of the first file and the route,
 * such as `robot.png › optimised`. A stage may have several uploads, which have the same name. It is {@link printable}.
 */
export function uploadName(key: string): string {
  const [, firstKey, segment = ''] = STAGE_KEY.exec(key) ?? [];
  const route = decodedId(segment);
  return printable(firstKey === undefined || route === undefined ? key : `${firstKey}${STAGE_SIGN}${route}`);
}

/** Stands between the key of the first file and the route. */
const STAGE_SIGN = ' › ';

/** The stage that such a name means. Undefined if the text has no such form. */
export function stageOfName(name: string): { readonly firstKey: string; readonly route: string } | undefined {
  const at = name.lastIndexOf(STAGE_SIGN);
  return at < 1 ? undefined : { firstKey: name.slice(0, at), route: name.slice(at + STAGE_SIGN.length) };
}

/** The key of the first file, of an upload's name. */
export const firstKeyOf = (name: string): string => name.split(STAGE_SIGN)[0] as string;

/** Tells whether a key is that of a later stage of the chain whose first file has the key `firstKey`. */
export const isStageKeyOf = (firstKey: string, key: string): boolean => STAGE_KEY.exec(key)?.[1] === firstKey;
