import { describe, expect, it } from 'vitest';
import { FLOWS } from '../../functions/flow-service/services.ts';
import { parseContext } from '../../functions/settings/context.ts';
import { SETTINGS_DEFAULT } from '../../functions/settings/settings.ts';
import { messagesOf, route } from './fixtures.ts';

describe('parseContext', () => {
  const context = { baseUrl: 'https://flows.example.com', routes: [route] };

  it('fills in the defaults of name and settings', () => {
    expect(parseContext(context)).toEqual({
      pipeline: 'flowdrop',
      baseUrl: new URL('https://flows.example.com'),
      routes: [route],
      settings: SETTINGS_DEFAULT,
      service: FLOWS,
      deployment: undefined,
    });
  });

  it('names the path and the value of every issue', () => {
    const broken = {
      baseUrl: 'http://flows.example.com',
      routes: [route, { ...route, name: 'b', suffixes: [5] }],
      settings: { attemptsMax: 1.5 },
      route: [],
    };
    expect(messagesOf(() => parseContext(broken))).toEqual([
      'flowdrop.baseUrl: expected https:, or http: on a loopback host, got http://flows.example.com',
      expect.stringMatching(/^flowdrop\.routes\[1\]\.suffixes\[0\]: expected a suffix .*, got 5$/),
      'flowdrop.settings.attemptsMax: expected a whole number of attempts from 1 to 100, got 1.5',
      'flowdrop.route: unknown, expected only pipeline, baseUrl, routes, settings, service, deployment, $schema here. Did you mean routes?',
    ]);
  });

  it('says what took the place of a member that is gone, in a route and in the settings', () => {
    const former = { routes: [{ ...route, circuit: false }], settings: { circuit: { after: 5 } } };
    const gone = 'is gone, because one uploader could stop a route for all others. After twenty failures alike, ';
    expect(messagesOf(() => parseContext({ baseUrl: 'https://flows.example.com', ...former }))).toEqual([
      expect.stringContaining(`flowdrop.routes[0].circuit: ${gone}`),
      expect.stringContaining(`flowdrop.settings.circuit: ${gone}`),
    ]);
  });

  it('names issues between members at once with all others, as far as the members have none themselves', () => {
    const broken = {
      baseUrl: 'ftp://flows.example.com',
      routes: [
        { ...route, name: 'any' },
        { ...route, name: 'any', suffixes: ['.png'] },
        { ...route, name: 5 },
        { ...route, name: 'out', prefixes: ['out/'] },
      ],
      settings: {
        inboxPrefix: 'in/',
        attemptsMax: 0,
        pollIntervalSeconds: 60,
        flowAgeMaxSeconds: 90,
        ledgerRetentionDays: 5,
      },
      route: [],
    };
    const issues = messagesOf(() => parseContext(broken, ''));
    expect(issues.map((issue) => issue.split(':')[0]).sort()).toEqual([
      ...['baseUrl', 'route', 'routes[1].name', 'routes[2].name', 'routes[3]'],
      ...['settings.attemptsMax', 'settings.flowAgeMaxSeconds', 'settings.ledgerRetentionDays'],
    ]);
  });

  it('refuses an alias that two routes of one chain would give to different results', () => {
    const alias = 'models/{key}{ext}';
    const named = (name: string, more: object) => ({ ...route, name, ...more });
    const routes = [named('a', { alias, suffixes: ['.a'] }), named('b', { alias, suffixes: ['.b'] })];
    const chains = [...routes, named('after a', { after: 'a' }), named('last', { after: 'after a' })];
    expect(() => parseContext({ ...context, routes: chains })).not.toThrow();
    const both = [...chains.slice(0, 3), named('last', { after: 'after a', alias })];
    expect(messagesOf(() => parseContext({ ...context, routes: both }))).toEqual([
      expect.stringContaining('routes[3].alias: expected another than that of routes[0]: both belong to one chain'),
    ]);
  });

  it('says what is expected if there is no context', () => {
    expect(messagesOf(() => parseContext(undefined))).toEqual([
      'flowdrop: expected an object with baseUrl and routes, such as {"baseUrl": "https://flows.example.com", ' +
        '"routes": [{"name": "all", "template": "the name of a template"}]}, but it is missing',
    ]);
  });
});
