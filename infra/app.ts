import { App, Validations } from 'aws-cdk-lib';
import { AwsSolutionsChecks } from 'cdk-nag';
import { ConfigurationError } from '../functions/base/validation.ts';
import { parseStackContext } from './deployment.ts';
import { FlowdropStack } from './flowdrop-stack.ts';

const app = new App();
const context: unknown = app.node.tryGetContext('flowdrop');
try {
  new FlowdropStack(app, parseStackContext(context).context.pipeline, {
    context,
    description: 'Files dropped into a bucket become flows; what these make is put into another',
  });
} catch (error) {
  if (!(error instanceof ConfigurationError)) throw error;
  // It is for whoever wrote cdk.json, to whom it matters what is wrong and not where that was noticed.
  process.stderr.write(`cdk.json: ${error.message}\n`);
  process.exit(1);
}
Validations.of(app).addPlugins(new AwsSolutionsChecks(app));

// The command line prints warnings and errors, but keeps notices to itself.
for (const { messages } of app.synth().stacks) {
  for (const { level, id, entry } of messages) {
    if (level === 'info') process.stderr.write(`${id}: ${entry.data}\n`);
  }
}
