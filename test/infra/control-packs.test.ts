import { readFileSync } from 'node:fs';
import { HIPAASecurityChecks, NIST80053R4Checks, NIST80053R5Checks, PCIDSS321Checks } from 'cdk-nag';
import { expect, it } from 'vitest';
import { FlowdropStack } from '../../infra/flowdrop-stack.ts';
import { PROPS, synthesise } from './synthesis.ts';

const PACKS = [HIPAASecurityChecks, NIST80053R4Checks, NIST80053R5Checks, PCIDSS321Checks];
const PAGE = readFileSync(new URL('../../docs/security.md', import.meta.url), 'utf8');

/** The rules of the table for auditors, by what to set. */
function table(): ReadonlyMap<string, readonly string[]> {
  const [, section = ''] = PAGE.split('\n## For auditors\n');
  const rows = Array.from(section.matchAll(/^\| (`.*) \| (.*) \|$/gm), ([, rules = '', set = '']) => {
    const names = Array.from(rules.matchAll(/`(\w+)`/g), ([, name = '']) => name);
    return [set, names] as const;
  });
  return new Map(rows);
}

/** The rules that the packs name, without the name of the pack. */
function namedFor(deployment: object): readonly string[] {
  const { findings } = synthesise(
    (app) => new FlowdropStack(app, 'flowdrop', { context: { ...PROPS, deployment } }),
    false,
    PACKS,
  );
  return [...new Set(findings.map((finding) => finding.replace(/^.*-(\w+)\b.* .*$/, '$1')))].sort();
}

const arn = (service: string, resource: string) => `arn:aws:${service}:eu-central-1:123456789012:${resource}`;

/** What the table says to set, and what it takes from an account. */
const SET: Readonly<Record<string, unknown>> = {
  alarmTopicArn: arn('sns', 'alarms'),
  encryptionKeyArn: arn('kms', 'key/01234567-89ab-cdef-0123-456789abcdef'),
  vpc: { id: 'vpc-01234567', subnetIds: ['subnet-01234567'] },
  accessLogsBucket: 'logs',
  versionRetentionDays: 30,
};

it('docs/security.md tells auditors which rules the control packs name, and what keeps them quiet', () => {
  const all = [...table().values()].flat();
  expect(namedFor({})).toEqual(all.toSorted());
  const quiet = Object.keys(SET).flatMap((name) => table().get(`\`${name}\``) ?? []);
  expect(quiet).toHaveLength(7);
  expect(namedFor(SET)).toEqual(all.filter((rule) => !quiet.includes(rule)).sort());
  const ofYourOwn = { inboxBucket: 'inbox', resultsBucket: 'results', ledgerBucket: 'ledger', tokenSecret: 'token' };
  const { versionRetentionDays: _, ...others } = SET;
  const kept = [...table()].flatMap(([set, rules]) => (set.startsWith('nothing') ? rules : []));
  // There is no new bucket then, which could be locked.
  expect(namedFor({ ...others, ...ofYourOwn })).toEqual(kept.filter((rule) => !rule.includes('Lock')).sort());
});
