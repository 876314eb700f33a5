import { describe, expect, it } from 'vitest';
import type { ServiceDescription } from '../../functions/flow-service/service-description.ts';
import { FLOWS, SERVICES } from '../../functions/flow-service/services.ts';
import { parseContext } from '../../functions/settings/context.ts';
import { parseEnv } from '../../functions/settings/environment.ts';
import { shortOf } from '../../functions/settings/service.ts';
import { env, messagesOf, route } from './fixtures.ts';

const contextWith = (service: unknown) =>
  parseContext({ baseUrl: 'https://flows.example.com', routes: [route], ...(service !== undefined && { service }) });

const issuesOf = (service: unknown): readonly string[] => messagesOf(() => contextWith(service));

/** An object in an object, and so on. */
function nested(levels: number): object {
  let value = {};
  for (let level = 1; level < levels; level += 1) value = { inner: value };
  return value;
}

describe('the service of a configuration', () => {
  it('is the flow service if nothing is said', () => {
    expect(contextWith(undefined).service).toEqual(FLOWS);
    expect(contextWith('flows').service).toEqual(FLOWS);
  });

  it('may be a description with some members changed, as a merge patch changes them', () => {
    const { service } = contextWith({
      from: 'flows',
      state: { completed: ['succeed'] },
      list: null,
      create: { body: { inputs: null, prompt: '{input}' } },
    });
    const { list: _, ...rest } = FLOWS;
    const { inputs: __, ...body } = FLOWS.create.body;
    expect(service).toEqual({
      ...rest,
      state: { ...FLOWS.state, completed: ['succeed'] },
      create: { ...FLOWS.create, body: { ...body, prompt: '{input}' } },
    });
  });

  it('may have outputs and pages of another form, which replace those that were declared', () => {
    const outputs = { addresses: ['/result/files'], isWhole: true };
    const pages = { by: 'cursor', at: '/next', parameter: 'cursor' };
    const { service } = contextWith({ from: 'flows', outputs, list: { pages } });
    expect(service.outputs).toEqual(outputs);
    expect(service.list).toEqual({ ...FLOWS.list, pages });
  });

  it('may be a whole description, and is frozen', () => {
    const { service } = contextWith(FLOWS);
    expect(service).toEqual(FLOWS);
    expect(Object.isFrozen(service.state.completed)).toBe(true);
  });

  it.each<[string, unknown, string]>([
    ['an unknown name', 'flowz', 'service: expected "flows"'],
    ['a list', [], 'service: expected "flows"'],
    ['changes of an unknown description', { from: 'flowz' }, 'service.from: expected the name of a description: flows'],
    ['a member in another word', { from: 'flows', state: { complete: ['x'] } }, 'service.state.complete: unknown, '],
    ['a pointer without a slash', { from: 'flows', state: { word: 'state' } }, 'service.state.word: expected a JSON'],
    ['words that are no list', { from: 'flows', state: { failed: 'failed' } }, 'service.state.failed: expected a list'],
    [
      'a path of assets without theirs',
      { from: 'flows', outputs: { asset: '/f/{id}' } },
      'service.outputs.asset: expected',
    ],
    [
      'a path without its id',
      { from: 'flows', state: { path: '/flows' } },
      'service.state: expected {id} in the path or',
    ],
    [
      'a path that leads upwards',
      { from: 'flows', abort: { path: '/../{id}' } },
      'service.abort.path: expected a path',
    ],
    [
      'a path that leads upwards before its query',
      { from: 'flows', abort: { path: '/{id}/..?x=1' } },
      'service.abort.path: expected a path',
    ],
    ['a path with a fragment', { from: 'flows', state: { path: '/f/{id}#x' } }, 'service.state.path: expected a path'],
    [
      'a query without its id',
      { from: 'flows', state: { path: '/f?id=x' } },
      'service.state: expected {id} in the path',
    ],
    ['a path with another placeholder', { from: 'flows', state: { path: '/{id}/{asset}' } }, 'service.state.path: '],
    ['a token in a header of another use', { from: 'flows', token: { header: 'Host' } }, 'service.token.header: '],
    [
      'a query with a question mark',
      { from: 'flows', list: { query: '?page_size=5' } },
      'service.list.query: expected',
    ],
    ['a status that is none', { from: 'flows', errors: { outOfCredit: [4020] } }, 'service.errors.outOfCredit[0]: '],
    ['pages in no known form', { from: 'flows', list: { pages: { by: 'magic' } } }, 'service.list.pages'],
    [
      'a creation without an input',
      { from: 'flows', create: { body: { inputs: null, prompt: 'x' } } },
      'service.create.body: expected a member {inputs} or {input} or {inputBase64} or {inputUrl}: without one',
    ],
    [
      'a creation that sends the file twice, deep in its body',
      { from: 'flows', create: { body: { source: { '2d': ['{input}'] } } } },
      'service.create.body: expected the file once, but /inputs and /source/2d/0 have it: with "from", null removes a member',
    ],
    [
      'one that sends it once more as bare base64',
      { from: 'flows', create: { body: { file: '{inputBase64}' } } },
      'service.create.body: expected the file once, but /inputs and /file have it',
    ],
    [
      'a word with two meanings',
      { from: 'flows', state: { running: ['created', 'completed'] } },
      'service.state.running[1]: expected a word that "completed" does not have: it can mean only one of them, got "completed"',
    ],
    [
      'a word of an output with two meanings',
      { from: 'flows', outputs: { pending: [null] } },
      'service.outputs.pending[0]: expected a word that "ready" does not have',
    ],
    [
      'base64 at no place of an answer',
      { from: 'flows', outputs: { data: null, base64: true } },
      'service.outputs.base64: expected "data" too, which points to the base64',
    ],
    [
      'a key in the header of the token',
      { from: 'flows', create: { idempotency: { header: 'authorization' } } },
      'service.create.idempotency.header: expected another header',
    ],
    [
      'a header with the name of the key',
      { from: 'flows', headers: { 'idempotency-key': 'x' } },
      'service.headers.idempotency-key: expected another header: two members',
    ],
    [
      'a header with the name of that of the token',
      { from: 'flows', token: { header: 'app_key', scheme: null }, headers: { App_Key: 'x' } },
      'service.headers.App_Key: expected another header: two members',
    ],
    [
      'a header of the creation alone',
      { from: 'flows', create: { headers: { Prefer: 'respond-async' } } },
      'service.create.headers: is gone. Declare `headers` beside `create`: each request has them',
    ],
    [
      'addresses that are no list',
      { from: 'replicate', outputs: { addresses: '/output' } },
      'service.outputs.addresses: expected JSON pointers, got "/output"',
    ],
    [
      'a refusal without its words',
      { from: 'flows', errors: { outOfCredit: [{ status: 403 }] } },
      'service.errors.outOfCredit[0].says: expected words of 1 to 100 characters',
    ],
    ['a description without its outputs', { from: 'flows', outputs: null }, 'service.outputs: expected'],
    [
      'nested thousands of levels deep',
      { from: 'flows', create: { body: nested(20_000) } },
      'service.create: expected something that JSON can say, nested at most',
    ],
  ])('is not %s', (_, service, issue) => {
    const issues = issuesOf(service);
    expect(issues.join('\n')).toContain(`flowdrop.${issue}`);
  });
});

it('a header may have an underscore in its name', () => {
  const token = { header: 'app_key' };
  expect(contextWith({ from: 'flows', token: { ...token, scheme: null } }).service.token).toEqual(token);
});

it('requests may have headers, but none that Flowdrop sends by itself', () => {
  const declared = (headers: object) => contextWith({ from: 'ogc-processes', headers }).service.headers;
  expect(declared({ app_id: 'flowdrop' })).toEqual({ Prefer: 'respond-async', app_id: 'flowdrop' });
  for (const name of ['authorization', 'Host', 'Cache-Control', 'Content-Length', 'traceparent', 'a b']) {
    expect(issuesOf({ from: 'flows', headers: { [name]: 'x' } })).toHaveLength(1);
  }
  for (const value of ['a\r\nb', '', 5])
    expect(issuesOf({ from: 'flows', headers: { Prefer: value } })).toHaveLength(1);
});

it('a description that ships may be changed, and is found again by its name', () => {
  expect(shortOf(contextWith('fal').service)).toBe('fal');
  const { service } = contextWith({ from: 'fal', create: { path: '/{template}/dev' } });
  expect(service).toEqual({ ...SERVICES.fal, create: { ...SERVICES.fal?.create, path: '/{template}/dev' } });
});

describe('a text in the body', () => {
  const create = (body: object) => ({ from: 'flows', create: { body } });
  const abort = (change: object) => ({ from: 'flows', abort: change });

  it.each<[string, object, string]>([
    [
      'a placeholder that is mistyped',
      create({ inputs: '{inputz}', file: '{input}' }),
      'create.body.inputs: expected {template}, {parameters}, {additional}, {inputs}, {input}, {inputBase64}, {inputUrl}, or {{word}} for the text {word}. Did you mean {inputs}?, got "{inputz}"',
    ],
    ['one in other letters', create({ template: '{Template}' }), 'Did you mean {template}?'],
    ['one with blanks', create({ list: ['{ template }'] }), 'create.body.list.0: expected {template}'],
    ['one in braces of another language', create({ template: '{{template}}' }), 'Did you mean {template}?'],
    ['one of another place', create({ job: '{id}' }), 'create.body.job: expected {template}, '],
    [
      'one within a longer text',
      create({ note: 'made by {template}' }),
      'create.body.note: expected {template} alone: nothing is replaced within',
    ],
    [
      'members of something without any',
      create({ '...': '{inputs}' }),
      'create.body....: expected {parameters} or {additional}',
    ],
    ['a number in place of members', create({ '...': 5 }), 'create.body....: expected {parameters} or {additional}'],
    [
      'one in a header',
      { from: 'flows', headers: { 'X-Model': '{template}' } },
      'headers.X-Model: expected no placeholder',
    ],
    [
      'one in the body of another request',
      abort({ body: { job: '{jobid}' } }),
      'abort.body.job: expected {id}, {template}, or',
    ],
    [
      'no id anywhere',
      abort({ path: '/cancel', body: { action: 'abort' } }),
      'abort: expected {id} in the path or in the body',
    ],
  ])('is not %s', (_, service, issue) => {
    const issues = issuesOf(service);
    expect(issues).toHaveLength(1);
    expect(issues[0]).toContain('flowdrop.service.');
    expect(issues[0]).toContain(issue);
  });

  it('may be like a placeholder if its braces are doubled, or be in braces with other signs', () => {
    const body = { literal: '{{prompt}}', css: 'a{color:red}', text: '{a b}', empty: '{}' };
    expect(issuesOf(create(body))).toEqual([]);
    expect(issuesOf(abort({ path: '/cancel', body: { job: '{id}', literal: '{{job}}' } }))).toEqual([]);
  });
});

it('may be asked for a flow by a body that has its id', () => {
  const state = (more: object) => ({ from: 'flows', state: { path: '/rpc', ...more } });
  expect(issuesOf(state({ body: { method: 'status', params: ['{id}'] } }))).toEqual([]);
  expect(issuesOf(state({ body: { method: 'status', params: ['{job}'] } }))).toMatchObject([
    expect.stringContaining('service.state.body.params.0: expected {id}, {template}, or'),
    expect.stringContaining('service.state: expected {id} in the path or in the body'),
  ]);
});

it('may take the file as bare base64', () => {
  expect(issuesOf({ from: 'flows', create: { body: { inputs: null, file: '{inputBase64}' } } })).toEqual([]);
});

it('may have its ids, and parameters of its own, in the query of a path', () => {
  const path = '/jobs/get?api-version=2026-11-01&job_id={id}';
  expect(issuesOf({ from: 'flows', state: { path }, list: { path: '/jobs?all=true' } })).toEqual([]);
});

describe('a service that fetches its input', () => {
  const byAddress = (create: object = {}, body: object = {}) => ({
    from: 'flows',
    create: { body: { inputs: null, image: '{inputUrl}', ...body }, ...create },
  });

  it.each<[string, object, string]>([
    [
      'valid for longer than the credentials of a function',
      byAddress({ inputUrlSeconds: 3_600 }),
      'create.inputUrlSeconds: expected seconds from 60 to 900: an address is valid no longer than the credentials',
    ],
    [
      'declared where the body has none',
      { from: 'flows', create: { inputUrlSeconds: 60 } },
      'create.inputUrlSeconds: expected none, because the body has no {inputUrl}',
    ],
    [
      'beside a key whose body must stay the same',
      byAddress({ idempotency: { hours: 24 } }),
      'create.idempotency.hours: expected 0 with {inputUrl}',
    ],
    ['beside the file itself', byAddress({}, { file: '{input}' }), 'create.body: expected "{inputUrl}", or "{input}"'],
    ['in other letters', byAddress({}, { image: '{inputURL}', file: '{input}' }), 'Did you mean {inputUrl}?'],
  ])('gets no address %s', (_, service, issue) => {
    const issues = issuesOf(service);
    expect(issues).toHaveLength(1);
    expect(issues[0]).toContain(issue);
  });

  it('gets an address of one file, and of no text', () => {
    const routes = [
      route,
      { name: 'texts', input: 'text', suffixes: ['.txt'], template: 't' },
      { name: 'jobs', jobs: 'jobs/', template: 't' },
    ];
    const issues = messagesOf(() =>
      parseContext({ baseUrl: 'https://flows.example.com', routes, service: byAddress({ inputUrlSeconds: 60 }) }),
    );
    expect(issues).toEqual([
      expect.stringContaining('flowdrop.routes[2].jobs: expected none: the service takes one input'),
      expect.stringContaining('flowdrop.routes[1].input: expected "file": the service gets an address of the file'),
    ]);
  });
});

describe('a service that takes one input', () => {
  const one = { from: 'flows', create: { body: { inputs: null, files: [{ image: '{input}' }] } } };
  const later = { name: 'sheet', after: 'pictures', inputs: 'all', template: 'contact_sheet' };
  const job = { name: 'jobs', jobs: 'jobs/', template: 'model_generate_multiview' };
  const issues = (service: unknown) =>
    messagesOf(() => parseContext({ baseUrl: 'https://flows.example.com', routes: [route, later, job], service }));

  it('gets no route with several, and says so before anything is paid for', () => {
    expect(issues(one)).toEqual([
      expect.stringContaining('flowdrop.routes[1].inputs: expected none: the service takes one input'),
      expect.stringContaining('flowdrop.routes[2].jobs: expected none: the service takes one input'),
    ]);
    expect(issues({ from: 'flows' })).toEqual([]);
  });

  it('says nothing of routes if its own description is wrong', () => {
    expect(issues({ ...one, state: { word: 'state' } })).toEqual([expect.stringContaining('flowdrop.service.state')]);
  });
});

describe('the functions', () => {
  const serviceIn = (service: ServiceDescription) => {
    const short = shortOf(service);
    return parseEnv(env(short === undefined ? {} : { SERVICE: JSON.stringify(short) })).service;
  };

  it.each(Object.entries(SERVICES))('read %s from its name', (name, service) => {
    expect([undefined, name]).toContain(shortOf(service));
    expect(serviceIn(service)).toEqual(service);
  });

  it('read any other description as it stands', () => {
    const service = { ...FLOWS, answerDepthMax: 60 };
    expect(shortOf(service)).toBe(service);
    expect(serviceIn(service)).toEqual(service);
  });

  it('name what is wrong with a description in their environment', () => {
    expect(messagesOf(() => parseEnv(env({ SERVICE: '{' })))).toEqual([expect.stringContaining('SERVICE: expected')]);
    expect(messagesOf(() => parseEnv(env({ SERVICE: '"magic"' })))).toEqual([
      expect.stringContaining('SERVICE: expected "flows"'),
    ]);
  });
});
