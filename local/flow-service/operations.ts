import { type Answer, empty, json, listingPage, Refusal, requireServed } from './answer.ts';
import type { BlobFolder, Content } from './blob.ts';
import type { Call } from './call.ts';
import { Flow, type Output, type State } from './flow.ts';
import { IdempotencyKeys } from './idempotency.ts';
import type { Admitted } from './limiter.ts';
import { type Body, inputsOf, type Problem, readBody } from './request-body.ts';
import { parameterProblems, TEMPLATES } from './templates.ts';
import type { Variation } from './variation.ts';

export interface OperationsOptions {
  readonly clock: { now(): number };
  readonly newId: () => string;
  /** How long a flow takes from its start to its end, in milliseconds. */
  readonly flowMs: number | ((flow: { readonly id: string; readonly template: string }) => number);
  readonly blobs: BlobFolder;
  /** May change between two requests. */
  readonly variation: Variation;
}

/** The operations of the service, and the flows that they work on. */
export class Operations {
  /** Every flow, deleted ones included, in the order of creation. */
  readonly flows = new Map<string, Flow>();
  readonly #options: OperationsOptions;
  readonly #variation: Variation;
  readonly #keys = new IdempotencyKeys();

  constructor(options: OperationsOptions) {
    this.#options = options;
    this.#variation = options.variation;
  }

  /** @throws {Refusal} */
  async run(call: Call, admission: Admitted): Promise<Answer> {
    switch (call.operation) {
      case 'createFlow': {
        const keys = { hours: this.#variation.idempotencyHours, now: () => this.#now() };
        return await this.#keys.run(call.request, keys, (request) => this.#createFlow({ ...call, request }, admission));
      }
      case 'listFlows':
        return this.#listFlows(call);
      case 'getFlow':
        return this.#getFlow(call);
      case 'changeFlow':
        return await this.#changeFlow(call);
      case 'deleteFlow':
        return this.#deleteFlow(call);
      case 'listOutputs':
        return this.#listOutputs(call);
      case 'getAsset':
        return this.#getAsset(call);
      case 'listTemplates':
        return json(200, { templates: TEMPLATES.map(templateRecord) });
      case 'unknown':
        throw new Refusal(404, 'Not Found');
    }
  }

  #createFlow(call: Call, admission: Admitted): Promise<Answer> {
    return this.#withBody(call, (body, problem) => {
      const { value } = body;
      const template = TEMPLATES.find(({ id, name }) => id === value.template || name === value.template);
      if (template === undefined) {
        problem(['template'], value.template === undefined ? 'Field required' : 'There is no such template');
        return undefined;
      }
      for (const { name, message } of parameterProblems(template, value.parameters)) {
        problem(['parameters', ...(name === undefined ? [] : [name])], message);
      }
      const inputs = inputsOf(body, template, problem);
      return () => {
        const now = this.#now();
        const flow = new Flow({
          id: this.#unusedId(),
          replica: call.request.replica,
          template,
          parameters: value.parameters,
          additional: value.additional,
          inputs,
          createdAt: now,
          listedFrom: now + this.#variation.listingDelayMs,
        });
        this.flows.set(flow.id, flow);
        admission.settle(flow);
        if (inputs.length > 0) this.#start(flow);
        return json(201, { [this.#variation.flowIdName]: flow.id, state: flow.state(now) });
      };
    });
  }

  #getFlow(call: Call): Answer {
    const { getFlow, outputsPath } = this.#variation;
    const showsEnd = getFlow !== 'forgotten' && getFlow !== 'leading-on';
    if (showsEnd) requireServed(getFlow);
    const flow = this.#flow(call);
    if (showsEnd || !flow.isTerminal(this.#now())) return json(200, this.#record(flow));
    if (getFlow === 'forgotten') throw new Refusal(404, 'There is no such flow');
    const outputs = `${encodeURIComponent(flow.id)}/outputs`;
    return { ...empty(303), headers: { location: outputsPath === 'flows' ? outputs : `../${outputs}` } };
  }

  /** Aborts a flow. To start one is not served: no client creates a flow without its inputs. */
  async #changeFlow(call: Call): Promise<Answer> {
    requireServed(this.#variation.changeFlow);
    const flow = this.#flow(call);
    return this.#withBody(call, ({ value }, problem) => {
      if (value.action !== 'abort') problem(['action'], 'must be abort');
      return () => {
        this.#requireState(flow, ['created', 'starting', 'running']);
        flow.abort(this.#now());
        return json(200, this.#record(flow));
      };
    });
  }

  #deleteFlow(call: Call): Answer {
    const flow = this.#flow(call);
    this.#requireState(flow, ['created', 'completed', 'aborted', 'failed']);
    flow.deleted = true;
    return empty(204);
  }

  #listFlows(call: Call): Answer {
    requireServed(this.#variation.listFlows);
    const now = this.#now();
    // A map iterates in the order of insertion, which is the order of creation.
    const known = [...this.flows.values()].filter(({ replica }) => replica === call.request.replica);
    const visible = known.filter((flow) => !flow.deleted && flow.listedFrom <= now);
    return listingPage(visible, call, this.#variation, (flow) => this.#record(flow));
  }

  #listOutputs(call: Call): Answer {
    const { outputsPath, outputsShape, earlyOutputs, flowIdName } = this.#variation;
    if ((outputsPath === 'flows') !== call.isUnderFlows) throw new Refusal(404, 'Not Found');
    const flow = this.#flow(call);
    const now = this.#now();
    const isEarly = !flow.isTerminal(now);
    if (isEarly && earlyOutputs === 'conflict') throw new Refusal(409, 'The flow is not in a terminal state');
    if (isEarly && earlyOutputs === 'not-found') throw new Refusal(404, 'There are no outputs yet');
    const outputs = isEarly && earlyOutputs === 'empty' ? [] : flow.outputRecords(now, this.#variation);
    return json(200, outputsShape === 'bare' ? outputs : { [flowIdName]: flow.id, outputs });
  }

  #getAsset(call: Call): Answer {
    const { assetForm, assetLength } = this.#variation;
    const { mediaType, content } = this.#readyOutput(call);
    const isJson = assetForm === 'json';
    return {
      status: 200,
      headers: { 'content-type': isJson ? 'application/json' : mediaType },
      body: isJson ? assetJson(mediaType, content) : content,
      isChunked: assetLength === 'chunked',
    };
  }

  #readyOutput(call: Call): Output {
    const flow = this.#flow(call);
    if (!flow.isTerminal(this.#now())) {
      const status = this.#variation.earlyOutputs === 'not-found' ? 404 : 409;
      throw new Refusal(status, 'The flow is not in a terminal state');
    }
    const output = flow.outputs.find(({ assetId }) => assetId === call.assetId);
    if (output === undefined) throw new Refusal(404, 'There is no such asset');
    if (output.error !== undefined) throw new Refusal(404, output.error);
    return output;
  }

  /**
   * Reads a body and has `check` validate it. If there is no problem, runs the action that `check` returned. Otherwise
   * the inputs are dropped.
   */
  async #withBody(
    { request }: Call,
    check: (body: Body, problem: Problem) => (() => Answer) | undefined,
  ): Promise<Answer> {
    const body = await readBody(request, this.#options.blobs);
    const detail: unknown[] = [];
    let answer: Answer | undefined;
    try {
      const act = check(body, (loc, msg) => detail.push({ loc: ['body', ...loc], msg, type: 'value_error' }));
      if (act === undefined || detail.length > 0) throw new Refusal(422, detail);
      answer = act();
      return answer;
    } finally {
      if (answer === undefined) body.discard();
    }
  }

  #start(flow: Flow): void {
    const { flowMs, newId } = this.#options;
    const durationMs = typeof flowMs === 'number' ? flowMs : flowMs({ id: flow.id, template: flow.template.name });
    flow.start(this.#now(), durationMs, newId);
  }

  #flow({ flowId, request }: Call): Flow {
    const flow = this.flows.get(flowId);
    if (flow === undefined || flow.deleted || flow.replica !== request.replica)
      throw new Refusal(404, 'There is no such flow');
    return flow;
  }

  #requireState(flow: Flow, states: readonly State[]): void {
    const state = flow.state(this.#now());
    if (!states.includes(state)) throw new Refusal(409, `This is not possible in the state ${state}`);
  }

  #record(flow: Flow): Record<string, unknown> {
    return flow.record(this.#now(), this.#variation);
  }

  #now(): number {
    return this.#options.clock.now();
  }

  #unusedId(): string {
    for (;;) {
      const id = this.#options.newId();
      if (!this.flows.has(id)) return id;
    }
  }
}

function templateRecord(template: (typeof TEMPLATES)[number]): Record<string, unknown> {
  const { id, name, description, parameters, inputTypes, outputTypes } = template;
  const types = (given: readonly string[]) => (given.length === 0 ? ['*/*'] : given);
  return { id, name, description, parameters, input_types: types(inputTypes), output_types: types(outputTypes) };
}

/** A multiple of 3 bytes, which are encoded without padding. Longer strings are slow in V8. */
const BASE64_SLICE_BYTES = 48 * 1024;

/** An asset as `{"data":"data:<type>;base64,..."}`, encoded while it is read. */
function assetJson(mediaType: string, content: Content): Content {
  const head = Buffer.from(`{"data":"data:${mediaType};base64,`);
  const tail = Buffer.from('"}');
  return {
    bytes: head.length + Math.ceil(content.bytes / 3) * 4 + tail.length,
    async *open() {
      yield head;
      let rest = Buffer.alloc(0);
      for await (const chunk of content.open()) {
        const bytes = Buffer.concat([rest, chunk]);
        let at = 0;
        for (; at + BASE64_SLICE_BYTES <= bytes.length; at += BASE64_SLICE_BYTES) {
          yield Buffer.from(bytes.toString('base64', at, at + BASE64_SLICE_BYTES), 'latin1');
        }
        rest = bytes.subarray(at);
      }
      yield Buffer.from(rest.toString('base64'), 'latin1');
      yield tail;
    },
  };
}
