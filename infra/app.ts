import { App, Validations } from 'aws-cdk-lib';
import { AwsSolutionsChecks } from 'cdk-nag';
import { parseContext } from '../functions/config.ts';
import { FlowdropStack } from './flowdrop-stack.ts';

const app = new App();
const context: unknown = app.node.tryGetContext('flowdrop');
new FlowdropStack(app, parseContext(context).pipeline, {
  context,
  description: 'Files dropped into a bucket become flows; what these make is put into another',
});
Validations.of(app).addPlugins(new AwsSolutionsChecks(app));
