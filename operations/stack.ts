import * as z from 'zod/mini';
import { type AwsAccess, askQuery } from './aws-requests.ts';

const outputSchema = z.object({ OutputKey: z.string(), OutputValue: z.string() });

/** An element that stands alone is no list, and one without content is a text. */
const members = <T>(schema: z.ZodMiniType<T>) =>
  z.object({
    member: z.union([
      z.array(schema),
      z.pipe(
        schema,
        z.transform((one: T): T[] => [one]),
      ),
    ]),
  });

/**
 * The answer of DescribeStacks.
 * @see https://docs.aws.amazon.com/AWSCloudFormation/latest/APIReference/API_DescribeStacks.html
 */
const answerSchema = z.object({
  DescribeStacksResponse: z.object({
    DescribeStacksResult: z.object({
      Stacks: members(z.object({ Outputs: z.optional(z.union([members(outputSchema), z.string()])) })),
    }),
  }),
});

/** The outputs of a deployed stack, by their names. @throws {AwsRequestError} there is no such stack, among others. */
export async function stackOutputs(
  stack: string,
  access: AwsAccess,
  signal: AbortSignal,
): Promise<Readonly<Record<string, string>>> {
  const input = { Action: 'DescribeStacks', Version: '2010-05-15', StackName: stack };
  const answer = answerSchema.parse(await askQuery('cloudformation', input, access, signal));
  const [stackFound] = answer.DescribeStacksResponse.DescribeStacksResult.Stacks.member;
  const outputs = stackFound?.Outputs;
  const listed = outputs === undefined || typeof outputs === 'string' ? [] : outputs.member;
  return Object.fromEntries(listed.map(({ OutputKey, OutputValue }) => [OutputKey, OutputValue]));
}
