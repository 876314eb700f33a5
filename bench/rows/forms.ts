import { atMost, type Check, figure, type Report, size } from '../report.ts';
import { FORMS, type Form } from '../servers/bytes.ts';
import type { Stage } from '../stage.ts';
import { ratio, spread } from '../statistics.ts';
import type { Cost } from '../subject.ts';
import { outOnce } from './transfer.ts';

const WARM_UP_BYTES = 100_000;

const NAMES: Readonly<Record<Form, string>> = {
  raw: 'the bytes themselves',
  uri: 'a data URI',
  escaped: 'a data URI with every slash escaped',
  lines: 'a data URI with line breaks',
};

/** Collects one asset in every form in which a service may answer it. */
export async function forms(
  stage: Stage,
  { bytes, rounds }: { readonly bytes: number; readonly rounds: number },
): Promise<Report> {
  const costs: Record<Form, Cost[]> = { raw: [], uri: [], escaped: [], lines: [] };
  for (let round = 0; round < rounds; round += 1) {
    await using subject = await stage.subject('ours', 'collect-outputs', stage.environment('plain'));
    for (const form of FORMS) await outOnce(stage, subject, 'ours', { bytes: WARM_UP_BYTES, form });
    await subject.call('settle');
    for (let turn = 0; turn < FORMS.length; turn += 1) {
      const form = FORMS[(turn + round) % FORMS.length] as Form;
      costs[form].push(await outOnce(stage, subject, 'ours', { bytes, form }));
    }
  }
  const wall = (form: Form) => costs[form].map(({ wallMs }) => wallMs);
  const target = (form: Form, to: Form, max: number): Check => {
    return atMost(`forms: ${NAMES[form]} : ${NAMES[to]}`, ratio(wall(form), wall(to)).median, max);
  };
  return {
    name: 'forms',
    figures: costs,
    checks: [target('uri', 'raw', 1.4), target('escaped', 'uri', 2), target('lines', 'uri', 2)],
    tables: [
      {
        title: `Out: an asset of ${size(bytes)} by the form of its answer`,
        columns: ['answered as', 'wall ms', 'cpu ms', 'wall : the bytes themselves'],
        rows: FORMS.map((form) => {
          const { median, min, max } = ratio(wall(form), wall('raw'));
          return [
            NAMES[form],
            figure(spread(wall(form)).median),
            figure(spread(costs[form].map(({ cpuMs }) => cpuMs)).median),
            `${figure(median)} (${figure(min)}-${figure(max)})`,
          ];
        }),
      },
    ],
  };
}
