import type { Content } from './blob.ts';
import type { Variation } from './variation.ts';

/** The form of the JSON. It must not change while the JSON is read. */
type Form = Readonly<Omit<Variation, 'assetLength'>>;

const LINE_CHARACTERS = 76;
/** A multiple of 57 bytes, which make one line of 76 characters. Longer strings are slow in V8. */
const SLICE_BYTES = 57 * 860;

/**
 * An asset as `{"data":"data:<type>;base64,..."}`, encoded while it is read.
 * @returns the answer's body. If slashes are escaped, counting its bytes takes an extra read of the asset.
 */
export async function assetJson(mediaType: string, content: Content, variation: Form): Promise<Content> {
  const { jsonMembersBefore, jsonMembersAfter, jsonWhiteSpace, jsonEscapedSlashes } = variation;
  const [space, line] = jsonWhiteSpace ? [' \t', '\r\n  '] : ['', ''];
  const member = (name: string, json: string) => `${line}"${name}"${space}:${space}${json}`;
  const slashes = (text: string) => (jsonEscapedSlashes ? text.replaceAll('/', '\\/') : text);

  // Quotes, brackets and a second data URI mislead a client that searches the text instead of parsing it.
  const decoy = `{"data":"data:text/plain;base64,ZGVjb3k=","note":"\\"data\\": \\"}]{["}`;
  const before = jsonMembersBefore ? `${member('meta', `[${decoy},{}]`)},${member('ready', 'true')},` : '';
  const after = jsonMembersAfter
    ? `,${member('bytes', String(content.bytes))},${member('tags', `["\\u0022",null]`)}`
    : '';
  const head = Buffer.from(`${line}{${before}${member('data', `"${slashes(`data:${mediaType};base64,`)}`)}`);
  const tail = Buffer.from(`"${after}${line}}${line}`);

  async function* open(): AsyncGenerator<Uint8Array> {
    yield head;
    for await (const text of base64(content.open(), variation)) yield Buffer.from(slashes(text), 'latin1');
    yield tail;
  }
  return {
    bytes: jsonEscapedSlashes ? await count(open()) : head.length + base64Bytes(content, variation) + tail.length,
    open,
  };
}

async function* base64(chunks: AsyncIterable<Uint8Array>, variation: Form): AsyncGenerator<string> {
  let carry = Buffer.alloc(0);
  for await (const chunk of chunks) {
    const bytes = carry.length === 0 ? Buffer.from(chunk) : Buffer.concat([carry, chunk]);
    let at = 0;
    for (; at + SLICE_BYTES <= bytes.length; at += SLICE_BYTES) {
      yield broken(bytes.toString('base64', at, at + SLICE_BYTES), variation);
    }
    carry = bytes.subarray(at);
  }
  const rest = carry.toString('base64');
  if (rest !== '') yield broken(variation.jsonUnpadded ? rest.replace(/=+$/, '') : rest, variation);
}

function broken(text: string, { jsonLineBreaks }: Form): string {
  return jsonLineBreaks ? text.replace(new RegExp(`.{${LINE_CHARACTERS}}`, 'g'), '$&\\n') : text;
}

function base64Bytes({ bytes }: Content, { jsonUnpadded, jsonLineBreaks }: Form): number {
  const characters = jsonUnpadded ? Math.ceil((bytes * 4) / 3) : Math.ceil(bytes / 3) * 4;
  return characters + (jsonLineBreaks ? 2 * Math.floor(characters / LINE_CHARACTERS) : 0);
}

async function count(chunks: AsyncIterable<Uint8Array>): Promise<number> {
  let bytes = 0;
  for await (const chunk of chunks) bytes += chunk.length;
  return bytes;
}
