import { createHash } from 'node:crypto';
import * as fc from 'fast-check';
import { describe, expect, it, onTestFinished } from 'vitest';
import { StandInFlowService } from '../../../local/flow-service/flow-service.ts';
import { TOKEN } from './support.ts';

/** Posts a body in the given chunks, without a transport. */
async function post(service: StandInFlowService, pieces: readonly Uint8Array[], contentLength?: number) {
  const { status, body } = await service.handle({
    method: 'POST',
    url: '/flows',
    headers: {
      authorization: `Bearer ${TOKEN}`,
      'content-type': 'application/json; charset=utf-8',
      ...(contentLength !== undefined && { 'content-length': String(contentLength) }),
    },
    body: (async function* () {
      // Every chunk uses the same memory, as in some transports: the service must copy the bytes that it keeps.
      for (const piece of pieces) {
        const lent = Buffer.from(piece);
        yield lent;
        lent.fill('!');
      }
    })(),
  });
  const answer = [];
  for await (const chunk of body instanceof Uint8Array ? [body] : body) answer.push(chunk);
  return { status, json: JSON.parse(Buffer.concat(answer).toString()) };
}

function newService(): StandInFlowService {
  const service = new StandInFlowService({ tokens: [TOKEN], flowMs: 0 });
  onTestFinished(() => service.close());
  return service;
}

function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

function bodyWith(data: string): Buffer {
  return Buffer.from(`{"template":"bytes_echo","inputs":[{"data":${data}}]}`);
}

function cut(bytes: Buffer, at: readonly number[]): Buffer[] {
  const ends = [...new Set(at.map((each) => each % (bytes.length + 1)))].sort((a, b) => a - b);
  return [...ends, bytes.length].map((end, i) => bytes.subarray(ends[i - 1] ?? 0, end));
}

const bytewise = (body: Buffer): Buffer[] => [...body].map((byte) => Buffer.from([byte]));

describe('accepts a body', () => {
  it('in chunks of any size and in any order', async () => {
    const service = newService();
    await fc.assert(
      fc.asyncProperty(
        fc.uint8Array({ maxLength: 300 }),
        fc.jsonValue({ maxDepth: 3 }).map((value) => JSON.parse(JSON.stringify(value))),
        fc.array(fc.nat(), { maxLength: 30 }),
        fc.boolean(),
        fc.constantFrom(undefined, 1, '\t'),
        async (bytes, additional, at, isDataFirst, space) => {
          const data = `data:image/x-any;base64,${Buffer.from(bytes).toString('base64')}`;
          const input = isDataFirst ? { data, additional } : { additional, data };
          const inputs = [
            input,
            { data: 'ein „Text“ 🦊\n', additional: { data: 'not this', inputs: [{ data: 'nor this' }] } },
          ];
          const whole = isDataFirst
            ? { inputs, template: 'bytes_echo', additional }
            : { additional, template: 'bytes_echo', parameters: {}, inputs };
          const body = Buffer.from(JSON.stringify(whole, null, space));
          const { status } = await post(service, cut(body, at), body.length);
          expect(status).toBe(201);
          const flow = service.flows.at(-1);
          expect(flow?.additional).toEqual(additional);
          expect(flow?.inputs).toEqual([
            { mediaType: 'image/x-any', bytes: bytes.length, sha256: sha256(bytes), additional },
            {
              mediaType: 'text/plain',
              bytes: Buffer.byteLength('ein „Text“ 🦊\n'),
              sha256: sha256(Buffer.from('ein „Text“ 🦊\n')),
              additional: inputs[1]?.additional,
            },
          ]);
          const { content } = service.asset(flow?.id ?? '', flow?.outputs[1]?.assetId ?? '');
          expect(Buffer.concat(await Array.fromAsync(content.open())).toString()).toBe('ein „Text“ 🦊\n');
        },
      ),
      { numRuns: 100 },
    );
  });

  it('with a key that is escaped', async () => {
    const service = newService();
    const body = Buffer.from(
      '{"template":"bytes_echo","\\u0069nputs":[{"d\\u0061ta":"data:;base64,aGVsbG8=","additional":"\\ud83e\\udd8a\\""}]}',
    );
    for (const pieces of [[body], bytewise(body)]) {
      expect((await post(service, pieces)).status).toBe(201);
      expect(service.flows.at(-1)?.inputs).toEqual([
        { mediaType: 'text/plain', bytes: 5, sha256: sha256(Buffer.from('hello')), additional: '🦊"' },
      ]);
    }
  });

  const TEXTS = ['data', 'data:', 'data: a study', 'datum', 'x'.repeat(3_000), `data:${'x'.repeat(3_000)}`, ''];
  it.each([
    ...TEXTS.map((text) => ['a text that only resembles a data URI', JSON.stringify(text), 'text/plain', text]),
    ['parameters of the media type', '"data:text/csv;a=b;base64,aGVsbG8="', 'text/csv;a=b', 'hello'],
  ] as [string, string, string, string][])('with %s', async (_, data, mediaType, content) => {
    const service = newService();
    expect((await post(service, [bodyWith(data)])).status).toBe(201);
    expect(service.flows[0]?.inputs).toMatchObject([{ mediaType, sha256: sha256(Buffer.from(content)) }]);
  });

  it('with duplicate members: the last one wins, as in JSON parsers', async () => {
    const service = newService();
    const body = '{"template":"text","template":"bytes_echo","inputs":[{"data":"one","data":"two"}]}';
    expect((await post(service, [Buffer.from(body)])).status).toBe(201);
    expect(service.flows[0]?.inputs[0]).toMatchObject({ sha256: sha256(Buffer.from('two')) });
  });
});

describe('refuses a body that is not JSON', () => {
  it.each([
    ['nothing', ''],
    ['a cut string', '{"template":"bytes_echo","inputs":[{"data":"data:;base64,aGVs'],
    ['a cut escape', '{"template":"bytes_echo","inputs":[{"data":"a\\'],
    ['a cut object', '{"template":"bytes_echo","inputs":[{"data":"a"}]'],
    ['text after the end', '{"template":"bytes_echo"}}'],
    ['a second value', '{"template":"bytes_echo"} {}'],
    ['an extra comma', '{"template":"bytes_echo","inputs":[{"data":"a"},]}'],
    ['no colon', '{"template" "bytes_echo"}'],
    ['brackets crossed', '{"template":"bytes_echo","inputs":[{"data":"a"]}}'],
    ['single quotes', "{'template':'bytes_echo'}"],
    ['an unknown escape', '{"template":"bytes_echo","inputs":[{"data":"a\\x41"}]}'],
    ['a control character', '{"template":"bytes_echo","inputs":[{"data":"a\u0001b"}]}'],
    ['a byte order mark', '\ufeff{"template":"bytes_echo"}'],
  ])('%s', async (_, text) => {
    const service = newService();
    const { status, json } = await post(service, [Buffer.from(text)]);
    expect(status).toBe(422);
    expect(json.detail).toEqual([{ loc: ['body'], msg: expect.any(String), type: 'json_invalid' }]);
    expect(service.flows).toEqual([]);
  });

  it('bytes that are not UTF-8', async () => {
    const service = newService();
    const body = Buffer.from('{"template":"bytes_echo","additional":"\xff"}', 'latin1');
    expect((await post(service, [body])).status).toBe(422);
  });
});

describe('refuses an input', () => {
  it.each([
    ['no padding', '"data:;base64,aGVsbG8"', /padding/],
    ['too little padding', '"data:;base64,aGVsbA="', /padding/],
    ['too much padding', '"data:;base64,aGVsbG8=="', /after its padding/],
    ['only padding', '"data:;base64,===="', /padding/],
    ['padding in the middle', '"data:;base64,aGU=aGU="', /after its padding/],
    ['white space', '"data:;base64,aGVs bG8="', /alphabet|padding/],
    ['a line break', '"data:;base64,aGVs\\nbG8h\\nbG8="', /alphabet|padding/],
    ['the alphabet for URLs', '"data:;base64,_-__"', /alphabet/],
    ['the alphabet for URLs at its end', '"data:;base64,a_=="', /alphabet/],
    ['a foreign character', '"data:;base64,aGV*"', /alphabet/],
    ['a foreign character of several bytes', '"data:;base64,aGéß"', /alphabet|padding/],
    ['no base64', '"data:text/plain,hello"', /base64/],
    ['no valid media type', '"data:text;base64,aGVsbG8="', /media type/],
    ['a data URI with escapes', '"data:text\\/plain;base64,aGVsbG8="', /without escapes/],
    ['half a surrogate pair', '"\\ud83ea"', /surrogate/],
  ])('for %s', async (_, data, why) => {
    const service = newService();
    const body = bodyWith(data);
    for (const pieces of [[body], bytewise(body)]) {
      const { status, json } = await post(service, pieces);
      expect(status).toBe(422);
      expect(json.detail).toMatchObject([{ loc: ['body', 'inputs', 0, 'data'], msg: expect.stringMatching(why) }]);
      expect(service.flows).toEqual([]);
    }
  });
});

describe('refuses a body', () => {
  it('with more than 32 MiB of JSON', async () => {
    const pieces = Array.from({ length: 33 }, () => Buffer.alloc(1024 * 1024, ' '));
    expect((await post(newService(), pieces)).status).toBe(413);
  });

  it('with a data URI that is no input', async () => {
    const { status, json } = await post(newService(), [
      Buffer.from('{"template":"bytes_echo","inputs":[{"data":"x","additional":"data:;base64,aGVsbG8="}]}'),
    ]);
    expect([status, json.detail]).toMatchObject([422, [{ loc: ['body', 'inputs'] }]]);
  });

  it('that differs from its Content-Length', async () => {
    const service = newService();
    const body = bodyWith('"hello"');
    await expect(post(service, [body], body.length + 1)).rejects.toThrow('reset');
    expect((await post(service, [body], body.length - 1)).status).toBe(400);
    expect(service.flows).toEqual([]);
    expect((await post(service, [body], body.length)).status).toBe(201);
  });
});
