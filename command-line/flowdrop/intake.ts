import { Command } from 'commander';
import { droppedSince, intakeOf, pause, QUEUE_DAYS, resume } from '../../operations/intake.ts';
import { type Add, example } from './add.ts';
import { type AskedOptions, isAllowed, YES } from './changes.ts';
import { EXIT_FAILED, EXIT_OK } from './run.ts';
import { showIntake } from './show.ts';
import { counted } from './words.ts';

/** The commands that stop and restart new flows. */
export function addIntake(add: Add): void {
  addPause(add);
  addResume(add);
}

function addPause(add: Add): void {
  const command = new Command('pause')
    .description('lets no new flows begin; files wait in the queue, and results are still collected')
    .addHelpText('after', example('pause'));
  add(command, async ({ console, deployment, signal }) => {
    const intake = await console.during(
      () => 'Pausing, which usually takes up to a minute',
      () => pause(deployment, signal),
    );
    const queue = await deployment.queueDepth(signal);
    console.answer({ intake, queue }, () => [
      `New flows: ${showIntake(intake, deployment)}.`,
      ...(queue.inFlight === 0
        ? []
        : [`Up to ${counted(queue.inFlight, 'file')} may still be on the way to the service. They are sent.`]),
      `Files wait in the queue, ${QUEUE_DAYS} days at most. Results are still collected. Go on: ${deployment.command} resume`,
    ]);
    return EXIT_OK;
  });
}

function addResume(add: Add): void {
  const command = new Command('resume')
    .description('lets new flows begin again')
    .option(...YES)
    .addHelpText('after', example('resume --yes'));
  add<AskedOptions>(command, async (run, _, options) => {
    const { console, deployment, signal } = run;
    const { visible } = await deployment.queueDepth(signal);
    const question = `The queue holds ${counted(visible, 'message')}. Each file may be paid for. Resume?`;
    if (visible > 0 && !(await isAllowed(run, question, options))) return EXIT_FAILED;
    const before = await intakeOf(deployment, signal);
    const dropped = before && droppedSince(before, deployment.clock.now());
    const intake = await console.during(
      () => 'Resuming, which usually takes up to a minute',
      () => resume(deployment, signal),
    );
    console.answer({ intake, dropped }, () => [
      'New flows begin again.',
      ...(dropped === undefined
        ? []
        : [
            `The queue drops files after ${QUEUE_DAYS} days. Submit them: ${deployment.command} sweep --since ${dropped}`,
          ]),
    ]);
    return EXIT_OK;
  });
}
