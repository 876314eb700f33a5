import { XMLParser } from 'fast-xml-parser';
import * as z from 'zod/mini';
import { type AwsAccess, sendToAws } from './aws-requests.ts';

/** The answer of DescribeStacks. @see https://docs.aws.amazon.com/AWSCloudFormation/latest/APIReference/API_DescribeStacks.html */
const outputsSchema = z.object({
  DescribeStacksResponse: z.object({
    DescribeStacksResult: z.object({
      Stacks: z.object({
        member: z.array(
          z.object({
            Outputs: z.optional(
              z.object({ member: z.array(z.object({ OutputKey: z.string(), OutputValue: z.string() })) }),
            ),
          }),
        ),
      }),
    }),
  }),
});

/** The outputs of a deployed stack, by their names. @throws {AwsRequestError} there is no such stack, among others. */
export async function stackOutputs(
  stack: string,
  access: AwsAccess,
  signal: AbortSignal,
): Promise<Readonly<Record<string, string>>> {
  const body = new URLSearchParams({ Action: 'DescribeStacks', Version: '2010-05-15', StackName: stack });
  const { text } = await sendToAws(
    {
      ...({ service: 'cloudformation', method: 'POST', path: '/' } as const),
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      body: body.toString(),
    },
    access,
    signal,
  );
  const parser = new XMLParser({ isArray: (name) => name === 'member', parseTagValue: false });
  const { member } = outputsSchema.parse(parser.parse(text)).DescribeStacksResponse.DescribeStacksResult.Stacks;
  return Object.fromEntries(
    (member[0]?.Outputs?.member ?? []).map(({ OutputKey, OutputValue }) => [OutputKey, OutputValue]),
  );
}
