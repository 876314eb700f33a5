import { describe, expect, it } from 'vitest';
import { claimAgain, ended, running, waiting } from '../../functions/ledger/entry.ts';
import { entrySchema } from '../../functions/ledger/entry-schema.ts';
import { asset, claim, failure, flow, later, upload, wait } from './support.ts';

const run = running(claim, flow);

/** An object as it is after it was stored. */
const stored = (value: object) => JSON.parse(JSON.stringify(value));

describe('the form of an entry', () => {
  it.each([
    ['claimed', claim],
    ['claimed again after a claim that died', claimAgain(claim, later)],
    ['waiting', waiting(claim, wait)],
    ['running', run],
    ['succeeded', ended(run, { assets: [asset] }, 1)],
    ['failed', ended(claim, { failure }, 1)],
  ])('is that of one which is %s', (_, entry) => {
    expect(entrySchema.parse(stored(entry))).toEqual(stored(entry));
  });

  const damaged: readonly (readonly [what: string, change: object, path: string])[] = [
    ['without a schema', { schema: undefined }, 'schema'],
    ['of another schema', { schema: 99 }, 'schema'],
    ['of a schema that is text', { schema: '1' }, 'schema'],
    ['without a state', { state: undefined }, 'state'],
    ['of another state', { state: 'pondering' }, 'state'],
    ['of an inherited state', { state: 'constructor' }, 'state'],
    ['without its upload', { upload: undefined }, 'upload'],
    ['of an upload without a key', { upload: { ...upload, key: 5 } }, 'upload.key'],
    ['of an upload id with a path', { upload: { ...upload, id: '../x' } }, 'upload.id'],
    ['without its route', { route: undefined }, 'route'],
    ['of a route without a template', { route: { name: 'echo', input: 'file' } }, 'route.template'],
    ['without its flow', { flow: undefined }, 'flow'],
    ['of a flow without an id', { flow: { createdAt: 1 } }, 'flow.id'],
    ['of a flow without a valid time', { flow: { id: 'f', createdAt: 'yesterday' } }, 'flow.createdAt'],
    ['of an invalid generation', { generation: 'first' }, 'generation'],
    ['of invalid attempts', { attempts: null }, 'attempts'],
    ['claimed without a deadline', { state: 'claimed', keyScope: '', claimedAt: 1 }, 'deadline'],
    ['waiting without a time', { ...wait, state: 'waiting', notBefore: undefined }, 'notBefore'],
    ['terminal without assets', { state: 'succeeded', endedAt: 1, failedOutputs: [] }, 'assets'],
  ];
  it.each(damaged)('is not that of one which is %s', (_, change, path) => {
    const { error } = entrySchema.safeParse(stored({ ...run, ...change }));
    expect(error?.issues.map((issue) => issue.path.join('.'))).toEqual([path]);
  });
});
