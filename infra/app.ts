import { App, Validations } from 'aws-cdk-lib';
import { AwsSolutionsChecks } from 'cdk-nag';
import { parseContext } from '../functions/config.ts';
import { FlowdropStack } from './flowdrop-stack.ts';

const app = new App();
const { pipeline, baseUrl, routes, limits } = parseContext(app.node.tryGetContext('flowdrop'));
new FlowdropStack(app, pipeline, {
  description: 'Files dropped into a bucket become flows; what these make is put into another',
  pipeline: { name: pipeline, baseUrl: baseUrl.href, routes, limits },
});
Validations.of(app).addPlugins(new AwsSolutionsChecks(app));
