/** A log event with the fields that CloudWatch discovers in it: `error.message` for a member of a member. */
export type LogEvent = Readonly<Record<string, string | number | boolean>>;

type Condition = (event: LogEvent) => boolean;

/** A query as far as a test needs it: what passes its filter, and which fields it names. */
export interface ParsedQuery {
  readonly matches: Condition;
  /** The comparisons in the filter. Each should be true for some event: otherwise it is of no use. */
  readonly comparisons: readonly { readonly text: string; readonly isTrueFor: Condition }[];
  /** Fields of events that the other commands name. */
  readonly fields: readonly string[];
}

const FUNCTIONS = ['count', 'count_distinct', 'latest', 'max', 'sum', 'sortsLast', 'coalesce'];
const TOKEN = /"[^"]*"|[@\w][\w.@]*|[=(),/*]|\S/g;

/** The fields of a line that a function prints. */
export function eventOf(line: string): LogEvent {
  const system = { '@message': line, '@timestamp': 0, '@log': '123456789012:/aws/lambda/flowdrop' };
  if (!line.startsWith('{')) return system;
  return { ...flattened(JSON.parse(line)), ...system };
}

function flattened(value: object, path = ''): Record<string, string | number | boolean> {
  return Object.assign(
    {},
    ...Object.entries(value).map(([name, member]) =>
      typeof member === 'object' && member !== null
        ? flattened(member, `${path}${name}.`)
        : { [`${path}${name}`]: member },
    ),
  );
}

/**
 * Parses the part of CloudWatch's query language that our queries use. Anything else is an error.
 * @see https://docs.aws.amazon.com/AmazonCloudWatch/latest/logs/CWL_QuerySyntax.html
 */
export function parseQuery(query: string): ParsedQuery {
  const [comment = '', ...rest] = query.split('\n');
  if (!comment.startsWith('# ')) throw new Error(`No question: ${comment}`);
  const commands = rest.join('\n').split('\n| ');
  const filters = commands.filter((command) => command.startsWith('filter '));
  const [filter, ...more] = filters;
  if (filter === undefined || more.length > 0) throw new Error(`Not one filter: ${query}`);
  const parsed = parseFilter(filter.slice('filter '.length));
  const named = new Set<string>();
  const made = new Set<string>();
  for (const command of commands) {
    if (command === filter) continue;
    const [verb = '', ...tokens] = command.match(TOKEN) ?? [];
    if (!['fields', 'stats', 'sort', 'limit'].includes(verb)) throw new Error(`An unknown command: ${command}`);
    for (const [index, token] of tokens.entries()) {
      if (tokens[index - 1] === 'as') made.add(token);
      else if (tokens[index + 1] === '(') {
        if (!FUNCTIONS.includes(token)) throw new Error(`An unknown function: ${token}`);
      } else if (/^[@a-zA-Z]/.test(token) && !['as', 'by', 'asc', 'desc'].includes(token)) named.add(token);
    }
  }
  return { ...parsed, fields: [...named].filter((field) => !made.has(field)) };
}

/** `and` binds before `or`. There are no parentheses. */
function parseFilter(filter: string): Pick<ParsedQuery, 'matches' | 'comparisons'> {
  const alternatives = filter
    .split(' or ')
    .map((alternative) => alternative.split(' and ').map((text) => ({ text, isTrueFor: comparison(text) })));
  return {
    matches: (event) => alternatives.some((all) => all.every(({ isTrueFor }) => isTrueFor(event))),
    comparisons: alternatives.flat(),
  };
}

function comparison(text: string): Condition {
  const [, field = '', operator = '', value = ''] = /^([@\w.]+) (=|like) "([^"]+)"$/.exec(text) ?? [];
  if (field === '') throw new Error(`An unknown comparison: ${text}`);
  return operator === '='
    ? (event) => event[field] === value
    : (event) => typeof event[field] === 'string' && event[field].includes(value);
}
