import * as z from 'zod/mini';
import { descriptionSchema } from '../../functions/flow-service/description-schema.ts';
import { SERVICES } from '../../functions/flow-service/services.ts';
import { chainReportSchema, receiptSchema } from '../../functions/publish/report-schemas.ts';
import { jobSchema } from '../../functions/uploads/job.ts';
import { stackSchema } from '../../infra/deployment.ts';
import { type Docs, docsOf, rowsOf } from './docstrings.ts';

/** A JSON schema, as far as it is changed here. */
export interface JsonSchema {
  description?: string;
  pattern?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly properties?: Record<string, JsonSchema>;
  readonly items?: JsonSchema;
  readonly anyOf?: readonly JsonSchema[];
  required?: readonly string[];
}

interface Published {
  readonly title: string;
  readonly description: string;
  readonly schema: z.ZodMiniType;
  readonly docs: Docs;
  /** True if it is merged into another one, member by member. Lists are whole. */
  readonly isPart?: boolean;
}

const REPORTS = ['functions/publish/report-schemas.ts', 'functions/ledger/entry-schema.ts'];
const MORE = 'Later versions of Flowdrop may add members.';

/** The files of `docs/schemas/`, by their names. */
export const PUBLISHED = {
  flowdrop: {
    title: 'The configuration of Flowdrop',
    description: 'The content of flowdrop.json. What depends on several members is checked at synth.',
    schema: stackSchema,
    docs: docsOfConfiguration(),
  },
  'flowdrop.stage': {
    title: 'What differs in one stage of Flowdrop',
    description: 'The content of flowdrop.<stage>.json: the members of flowdrop.json that it replaces.',
    schema: stackSchema,
    docs: docsOfConfiguration(),
    isPart: true,
  },
  service: {
    title: 'How a flow service speaks',
    description: 'A whole description of a service: the member `service` of flowdrop.json.',
    schema: descriptionSchema(),
    docs: docsOfService(),
  },
  job: {
    title: 'A job of Flowdrop',
    description: 'The content of job.json: the inputs of one flow.',
    schema: jobSchema,
    docs: {
      ...docsOf(['functions/uploads/job.ts'], 'jobSchema'),
      inputs: {
        ...docsOf(['functions/uploads/job.ts'], 'jobSchema').inputs,
        members: docsOf(['functions/uploads/job.ts'], 'inputSchema'),
      },
    },
  },
  receipt: {
    title: 'A receipt of Flowdrop',
    description: `How an upload ended: the content of receipt.json. ${MORE}`,
    schema: receiptSchema,
    docs: docsOf(REPORTS, 'receiptSchema'),
  },
  chain: {
    title: 'The end of a chain of Flowdrop',
    description: `How a chain ended: the content of chain.json. ${MORE}`,
    schema: chainReportSchema,
    docs: docsOf(REPORTS, 'chainReportSchema'),
  },
} satisfies Readonly<Record<string, Published>>;

export type PublishedName = keyof typeof PUBLISHED;

function docsOfService(): Docs {
  const of = (name: string) => docsOf(['functions/flow-service/service-description.ts'], name);
  const pages = { ...of('NumberedPages'), ...of('CursorPages'), ...of('AddressedPages') };
  const paged = (docs: Docs): Docs => ({ ...docs, pages: { ...docs.pages, members: pages } });
  const { outputs, list, templates, errors, ...docs } = of('ServiceDescription');
  const worded = Object.entries(of('ErrorsDescription')).map(([name, { text }]) => [
    name,
    { text, members: of('WordedRefusal') },
  ]);
  return {
    ...docs,
    outputs: { ...outputs, members: paged({ ...of('AnyOutputs'), ...of('LinkedOutputs'), ...of('ListedOutputs') }) },
    list: { ...list, members: paged({ ...of('PagedListing'), ...of('ListDescription') }) },
    templates: { ...templates, members: paged(of('PagedListing')) },
    errors: { ...errors, members: Object.fromEntries(worded) },
  };
}

function docsOfConfiguration(): Docs {
  const { routes, settings, deployment, ...rows } = rowsOf('');
  const { vpc, proxy, notify, ...deploymentRows } = rowsOf('deployment.');
  return {
    ...rows,
    $schema: { text: 'Path of this file, for editors.' },
    routes: {
      ...routes,
      members: {
        ...docsOf(['functions/uploads/route.ts', 'functions/uploads/budget.ts'], 'Route'),
        ...docsOf(['functions/uploads/route-conditions.ts'], 'Conditions'),
      },
    },
    settings: { ...settings, members: docsOf(['functions/settings/settings.ts'], 'SETTINGS') },
    deployment: {
      ...deployment,
      members: {
        ...deploymentRows,
        vpc: { ...vpc, members: docsOf(['infra/deployment.ts'], 'vpcSchema') },
        notify: { ...notify, members: docsOf(['infra/notify.ts'], 'notifyTargetSchema') },
        proxy: { ...proxy, members: docsOf(['infra/deployment.ts'], 'proxySchema') },
      },
    },
  };
}

/** The JSON schema of what a person or a function writes, before it is parsed. */
export function jsonSchemaOf({ title, description, schema, docs, isPart = false }: Published): JsonSchema {
  const { $schema, ...made } = z.toJSONSchema(schema, {
    io: 'input',
    // Any JSON, whose depth alone is checked.
    unrepresentable: 'any',
    override: ({ jsonSchema, zodSchema }) => {
      // That is a matter of the types.
      delete jsonSchema.readOnly;
      // An editor would write all settings out.
      if (jsonSchema.type === 'object') delete jsonSchema.default;
      // What JSON can say exactly is no limit of ours.
      if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum;
      const flags = flagsOf(zodSchema).filter((each) => each !== 'u');
      if (flags.length > 0) throw new Error(`${jsonSchema.pattern}: the patterns of JSON schemas have no ${flags}`);
    },
  }) as JsonSchema & { readonly $schema: string };
  if (made.properties?.service !== undefined) made.properties.service = serviceMember();
  describeMembers(made, docs);
  if (isPart) requireNothing(made);
  return { $schema, title, description, ...made } as JsonSchema;
}

/** The member `service` of a configuration. The code resolves the first two forms to the third. */
function serviceMember(): JsonSchema {
  const name = { enum: Object.keys(SERVICES) };
  const {
    $schema: _,
    title,
    description,
    ...whole
  } = jsonSchemaOf(PUBLISHED.service) as JsonSchema & {
    readonly $schema: string;
    readonly title: string;
  };
  const changed = { type: 'object', properties: { from: name }, required: ['from'] };
  return { anyOf: [name, changed, whole] } as unknown as JsonSchema;
}

const flagsOf = ({ _zod }: z.core.$ZodType): readonly string[] =>
  (_zod.def.checks ?? []).flatMap((each) => {
    const { pattern } = each._zod.def as { readonly pattern?: RegExp };
    return [...(pattern?.flags ?? '')];
  });

function describeMembers({ properties = {}, anyOf = [] }: JsonSchema, docs: Docs): void {
  for (const form of anyOf) describeMembers(form, docs);
  for (const [name, member] of Object.entries(properties)) {
    const { text, members } = docs[name] ?? {};
    if (members !== undefined) describeMembers(member.items ?? member, members);
    if (text !== undefined) properties[name] = { description: text, ...member };
  }
}

function requireNothing(schema: JsonSchema): void {
  delete schema.required;
  for (const member of Object.values(schema.properties ?? {})) requireNothing(member);
}
