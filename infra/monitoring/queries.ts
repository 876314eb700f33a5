import { CfnQueryDefinition, type ILogGroup } from 'aws-cdk-lib/aws-logs';
import { Construct } from 'constructs';
import type { FunctionName } from '../bundle/bundle.ts';

/** One question that the runbook asks of the logs. */
interface SavedQuery {
  /** The runbook names the query by it. */
  readonly name: string;
  /** First line of the query, a comment. */
  readonly question: string;
  /** Functions whose logs are searched. */
  readonly of: readonly FunctionName[];
  /** The commands, in CloudWatch's Logs Insights query language. */
  readonly commands: readonly string[];
}

// Written out: the package has no `bundle.ts`, so only its types can be imported.
const BOTH: readonly FunctionName[] = ['create-flow', 'collect-outputs'];
const CREATE: readonly FunctionName[] = ['create-flow'];
const COLLECT: readonly FunctionName[] = ['collect-outputs'];

/** Maximum number of rows of a list. */
const ROWS = 'limit 1000';
const NEWEST_FIRST = 'sort @timestamp desc';

/**
 * Every field and message is one that the functions write: `test/infra/monitoring/queries.test.ts` runs the queries
 * over real lines. Fields with an @ are CloudWatch's own.
 * @see https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/CWL_AnalyzeLogData-discoverable-fields.html
 */
const QUERIES: readonly SavedQuery[] = [
  {
    name: 'one file',
    question: 'What happened to one file? Put its key or its upload id into the next line.',
    of: BOTH,
    commands: [
      'filter @message like "KEY OR UPLOAD ID"',
      'fields @timestamp, function_name, level, message, reason, decision, code, error.message, uploadId, flowId, receipt',
      'sort @timestamp asc',
      ROWS,
    ],
  },
  {
    name: 'why uploads wait',
    question: 'Why do uploads wait, and until when?',
    of: CREATE,
    commands: [
      'filter message = "The upload waits"',
      'stats count(*) as waits, count_distinct(uploadId) as uploads, latest(key) as example, latest(notBefore) as until by reason',
      'sort waits desc',
    ],
  },
  {
    name: 'what the service answered',
    question: 'Why could uploads not be sent? What did the flow service answer?',
    of: CREATE,
    commands: [
      'filter message = "The upload could not be sent"',
      'stats count(*) as times, count_distinct(uploadId) as uploads, latest(key) as example by decision, error.name, error.message',
      'sort times desc',
      ROWS,
    ],
  },
  {
    name: 'failures by code',
    question: 'What failed, by code?',
    of: BOTH,
    commands: [
      'filter message = "Upload failed"',
      'stats count_distinct(uploadId) as uploads, latest(receipt) as example by code',
      'sort uploads desc',
    ],
  },
  {
    name: 'failed uploads',
    question: 'Which uploads failed? A receipt may be told twice.',
    of: BOTH,
    commands: [
      'filter message = "Upload failed"',
      'fields @timestamp, code, receipt, uploadId, flowId',
      NEWEST_FIRST,
      ROWS,
    ],
  },
  {
    name: 'uploads given back',
    question: 'Why did create-flow give uploads back to the queue?',
    of: CREATE,
    commands: [
      'filter message = "This delivery failed. The queue delivers the message again." or message = "A message names no upload. It will become a dead letter."',
      'stats count(*) as deliveries, count_distinct(key) as uploads, latest(key) as example by error.name, error.message',
      'sort deliveries desc',
      ROWS,
    ],
  },
  {
    name: 'what the sweep submitted',
    question: 'Which uploads had no entry, so that the sweep submitted them?',
    of: COLLECT,
    commands: [
      'filter message = "The sweep submits an upload that has no entry"',
      'fields @timestamp, key, uploadId',
      NEWEST_FIRST,
      ROWS,
    ],
  },
  {
    name: 'sweeps',
    question: 'When were sweeps requested, and how did they end?',
    of: COLLECT,
    commands: [
      'filter message = "Sweep requested" or message = "Sweep ended" or message = "Sweep was cut off. The next ticks continue it."',
      'fields @timestamp, message, kind, since, complete, compared, missed, repaired, asked',
      NEWEST_FIRST,
      ROWS,
    ],
  },
  {
    name: 'doubts',
    question: 'Which uploads were in doubt, and what was done?',
    of: CREATE,
    commands: [
      'filter reason = "in-doubt" or reason = "undecided" or message = "It may be sent again although a flow may exist" or message = "Sent again although a flow may exist" or message = "Flow adopted"',
      'fields @timestamp, message, reason, why, notBefore, key, uploadId, flowId',
      NEWEST_FIRST,
      ROWS,
    ],
  },
  {
    name: 'shared flows',
    question: 'Which flows belong to two uploads, or to another one?',
    of: COLLECT,
    commands: [
      'filter message like "gave this flow to another upload" or message like "with the flow of another upload"',
      'stats count(*) as times, latest(@timestamp) as last by flowId, uploadId',
      'sort last desc',
      ROWS,
    ],
  },
  {
    name: 'unreadable entries',
    question: 'Which entries of the ledger cannot be read, and why?',
    of: BOTH,
    commands: [
      'filter error.name = "UnreadableEntryError"',
      'stats count(*) as times, latest(@timestamp) as last by uploadId, error.message',
      'sort last desc',
      ROWS,
    ],
  },
  {
    name: 'slow ticks',
    question: 'Which ticks took long, and how did they end?',
    of: COLLECT,
    commands: [
      'fields coalesce(function_request_id, @requestId) as request',
      'filter message = "Tick ended" or @type = "REPORT"',
      'stats max(@duration / 1000) as seconds, sortsLast(result) as outcome, max(rounds) as turns, max(running) as flows, max(polled) as polls, max(resubmitted) as sentAgain by request',
      'sort seconds desc',
      'limit 100',
    ],
  },
  {
    name: 'ticks by result',
    question: 'How do ticks end?',
    of: COLLECT,
    commands: [
      'filter message = "Tick ended"',
      'stats count(*) as ticks, latest(@timestamp) as last, sum(succeeded) as ended, sum(failed) as endedAsFailed by result',
      'sort last desc',
    ],
  },
  {
    name: 'flows that cannot be polled',
    question: 'Why can flows not be polled or stored?',
    of: COLLECT,
    commands: [
      'filter message like "could not be processed" and level = "ERROR"',
      'stats count(*) as times, count_distinct(flowId) as flows, latest(flowId) as example by error.name, error.message',
      'sort times desc',
      ROWS,
    ],
  },
  {
    name: 'invocations cut short',
    question: 'Which invocations crashed, ran out of time or memory, or failed?',
    of: BOTH,
    commands: [
      'filter @message like "Task timed out" or @message like "Runtime exited" or @message like "OutOfMemory" or message = "The invocation failed"',
      'fields @timestamp, @log, @message, function_request_id, error.name, error.message',
      NEWEST_FIRST,
      ROWS,
    ],
  },
  {
    name: 'errors',
    question: 'Which errors are there?',
    of: BOTH,
    commands: [
      'filter level = "ERROR"',
      'stats count(*) as times, latest(@timestamp) as last by function_name, message, error.name, error.message',
      'sort last desc',
      ROWS,
    ],
  },
];

export interface SavedQueriesProps {
  readonly pipeline: string;
  readonly logs: Readonly<Record<FunctionName, ILogGroup>>;
}

/** The queries in Logs Insights, in a folder with the pipeline's name. */
export class SavedQueries extends Construct {
  constructor(scope: Construct, id: string, { pipeline, logs }: SavedQueriesProps) {
    super(scope, id);
    for (const { name, question, of, commands } of QUERIES) {
      new CfnQueryDefinition(this, name, {
        name: `${pipeline}/${name}`,
        logGroupNames: of.map((each) => logs[each].logGroupName),
        queryString: `# ${question}\n${commands.join('\n| ')}`,
      });
    }
  }
}
