import { App } from 'aws-cdk-lib';
import { Template } from 'aws-cdk-lib/assertions';
import { ModelsStack } from '../lib/models-stack';

test('the stack has both functions, the rule of the app, and one for the inbox', () => {
  const template = Template.fromStack(new ModelsStack(new App(), 'Models'));
  template.resourceCountIs('AWS::Lambda::Function', 2);
  template.resourceCountIs('AWS::Events::Rule', 2);
});
