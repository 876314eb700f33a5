import { chmodSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { App, Validations } from 'aws-cdk-lib';
import { AwsSolutionsChecks } from 'cdk-nag';
import { ownEnvironment } from '../command-line/own-environment.ts';
import { ConfigurationError } from '../functions/base/validation.ts';
import { readStackContext } from './deployment.ts';
import { FlowdropStack } from './flowdrop-stack.ts';

ownEnvironment(); // The bundler needs no token.
const app = new App();
chmodSync(app.outdir, 0o700); // A user who may write there can replace the code that is deployed.
// npm has an option -c of its own. Without --, it would swallow the stage, and another stack would be deployed.
const swallowed = process.env.npm_config_call;
if (swallowed) {
  process.stderr.write(`npm took -c for an option of its own. Put -- before it: npm run deploy -- -c ${swallowed}\n`);
  process.exit(1);
}
try {
  const { value, context } = readStackContext({
    dir: fileURLToPath(new URL('..', import.meta.url)),
    stage: app.node.tryGetContext('stage'),
    context: app.node.tryGetContext('flowdrop'),
  });
  new FlowdropStack(app, context.pipeline, {
    context: value,
    description: 'Creates a flow for each file that is put into a bucket, and stores its outputs in another bucket',
  });
} catch (error) {
  if (!(error instanceof ConfigurationError)) throw error;
  // The author of the configuration needs the message, not the stack trace.
  process.stderr.write(`${error.message}\n`);
  process.exit(1);
}
if (process.env.CDK_DEFAULT_ACCOUNT === undefined) {
  process.stderr.write(
    'There are no AWS credentials. npm run diff and npm run deploy need them: ' +
      'log in, for example with aws sso login, or set AWS_PROFILE.\n',
  );
}
Validations.of(app).addPlugins(new AwsSolutionsChecks(app));

// The command line prints warnings and errors, but not notices.
for (const { messages } of app.synth().stacks) {
  for (const { level, id, entry } of messages) {
    if (level === 'info') process.stderr.write(`${id}: ${entry.data}\n`);
  }
}
