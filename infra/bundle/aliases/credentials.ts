/**
 * Stands in for `@aws-sdk/credential-provider-node` in the bundles. Returns the credentials that Lambda sets in the
 * environment. They do not change during the life of a process.
 * @see https://docs.aws.amazon.com/lambda/latest/dg/configuration-envvars.html
 */
export const defaultProvider = () => async () => {
  const { AWS_ACCESS_KEY_ID: accessKeyId, AWS_SECRET_ACCESS_KEY: secretAccessKey, AWS_SESSION_TOKEN } = process.env;
  if (!accessKeyId || !secretAccessKey) {
    throw new Error('The environment lacks AWS_ACCESS_KEY_ID or AWS_SECRET_ACCESS_KEY');
  }
  return { accessKeyId, secretAccessKey, ...(AWS_SESSION_TOKEN && { sessionToken: AWS_SESSION_TOKEN }) };
};
