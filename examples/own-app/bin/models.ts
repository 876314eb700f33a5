import { App } from 'aws-cdk-lib';
import { ModelsStack } from '../lib/models-stack';

new ModelsStack(new App(), 'Models');
