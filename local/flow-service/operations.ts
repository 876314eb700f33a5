import { type Answer, empty, json, list, Refusal, requireServed } from './answer.ts';
import { assetJson } from './asset-json.ts';
import type { BlobFolder, Content } from './blob.ts';
import type { Call } from './call.ts';
import { Flow, type Output, type State } from './flow.ts';
import type { JsonPath } from './json-reader.ts';
import type { Admitted } from './limiter.ts';
import { listingPage, outputsPage } from './paging.ts';
import { flowRecord, outputRecord, templateRecords } from './records.ts';
import { type Body, inputOf, inputsOf, isDataOfInput, isDataOfInputs, type Problem, readBody } from './request-body.ts';
import { parameterProblems, TEMPLATES } from './templates.ts';
import type { ServiceRequest } from './transport.ts';
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
  readonly #clock: OperationsOptions['clock'];
  readonly #newId: OperationsOptions['newId'];
  readonly #flowMs: OperationsOptions['flowMs'];
  readonly #blobs: BlobFolder;
  readonly #variation: Variation;
  /** Number of downloads while assets vary. */
  #downloads = 0;

  constructor({ clock, newId, flowMs, blobs, variation }: OperationsOptions) {
    this.#clock = clock;
    this.#newId = newId;
    this.#flowMs = flowMs;
    this.#blobs = blobs;
    this.#variation = variation;
  }

  /** @throws {Refusal} */
  async run(call: Call, admission: Admitted): Promise<Answer> {
    switch (call.operation) {
      case 'createFlow':
        return await this.#createFlow(call, admission);
      case 'addInput':
        return await this.#addInput(call);
      case 'listFlows':
        return this.#listFlows(call);
      case 'getFlow':
        requireServed(this.#variation.getFlow);
        return json(200, this.#record(this.#flow(call)));
      case 'changeFlow':
        return await this.#changeFlow(call);
      case 'deleteFlow':
        return this.#deleteFlow(call);
      case 'listOutputs':
        return this.#listOutputs(call);
      case 'getAsset':
        return await this.#getAsset(call);
      case 'listTemplates':
        requireServed(this.#variation.listTemplates);
        return list(this.#variation.listShape, 'templates', templateRecords());
      case 'download':
        return await this.#download(call);
      case 'unknown':
        throw new Refusal(404, 'Not Found');
    }
  }

  #createFlow({ request }: Call, admission: Admitted): Promise<Answer> {
    return this.#withBody(request, isDataOfInputs, ({ value, data }, problem) => {
      const template = TEMPLATES.find(({ id, name }) => id === value.template || name === value.template);
      if (template === undefined) {
        problem(['template'], value.template === undefined ? 'Field required' : 'There is no such template');
        return undefined;
      }
      for (const { name, message } of parameterProblems(template, value.parameters)) {
        problem(['parameters', ...(name === undefined ? [] : [name])], message);
      }
      const inputs = inputsOf(value.inputs, template, data, problem);
      return () => {
        const now = this.#clock.now();
        const flow = new Flow({
          id: this.#unusedId(),
          template,
          parameters: value.parameters,
          additional: value.additional,
          createdAt: now,
          listedFrom: now + this.#variation.listingDelayMs,
        });
        flow.inputs.push(...inputs);
        this.flows.set(flow.id, flow);
        admission.settle(flow);
        if (inputs.length > 0) this.#start(flow);
        return json(this.#variation.createStatus, {
          [this.#variation.flowIdName]: flow.id,
          state: flow.state(now),
        });
      };
    });
  }

  async #addInput(call: Call): Promise<Answer> {
    requireServed(this.#variation.addInput);
    const flow = this.#flow(call);
    return this.#withBody(call.request, isDataOfInput, ({ value, data }, problem) => {
      const input = inputOf(value, flow.template, data, problem);
      return () => {
        this.#requireState(flow, ['created']);
        if (input !== undefined) flow.inputs.push(input);
        return json(201, this.#record(flow));
      };
    });
  }

  async #changeFlow(call: Call): Promise<Answer> {
    requireServed(this.#variation.changeFlow);
    const flow = this.#flow(call);
    return this.#withBody(
      call.request,
      () => false,
      ({ value }, problem) => {
        if (value.action !== 'start' && value.action !== 'abort') problem(['action'], 'must be start or abort');
        return () => {
          if (value.action === 'start') {
            this.#requireState(flow, ['created']);
            if (flow.inputs.length === 0) throw new Refusal(409, 'The flow has no inputs');
            this.#start(flow);
          } else {
            this.#requireState(flow, ['created', 'starting', 'running']);
            flow.abort(this.#clock.now());
          }
          return json(200, this.#record(flow));
        };
      },
    );
  }

  #deleteFlow(call: Call): Answer {
    requireServed(this.#variation.deleteFlow);
    const flow = this.#flow(call);
    this.#requireState(flow, ['created', 'completed', 'aborted', 'failed']);
    flow.deleted = true;
    return empty(204);
  }

  #listFlows({ path, query }: Call): Answer {
    requireServed(this.#variation.listFlows);
    const now = this.#clock.now();
    // A map iterates in the order of insertion, which is the order of creation.
    const visible = [...this.flows.values()].filter((flow) => !flow.deleted && flow.listedFrom <= now);
    return listingPage(visible, { path, query }, this.#variation, (flow) => this.#record(flow));
  }

  #listOutputs(call: Call): Answer {
    const { outputsPath, earlyOutputs, flowIdName } = this.#variation;
    if (outputsPath !== 'both' && (outputsPath === 'flows') !== call.isUnderFlows) throw new Refusal(404, 'Not Found');
    const flow = this.#flow(call);
    const isTerminal = flow.isTerminal(this.#clock.now());
    if (!isTerminal && earlyOutputs === 'conflict') throw new Refusal(409, 'The flow is not in a terminal state');
    if (!isTerminal && earlyOutputs === 'not-found') throw new Refusal(404, 'There are no outputs yet');
    const outputs = !isTerminal && earlyOutputs === 'empty' ? [] : flow.outputs;
    const finishedAt = isTerminal ? flow.endsAt : undefined;
    const records = outputs.map((output) => outputRecord(output, finishedAt, this.#variation));
    return outputsPage(records, call.query, this.#variation, { [flowIdName]: flow.id });
  }

  async #getAsset(call: Call): Promise<Answer> {
    const { assetRedirect } = this.#variation;
    const output = this.#readyOutput(call);
    if (assetRedirect) {
      const location = assetRedirect(call.flowId, call.assetId);
      return empty(302, { location });
    }
    return this.#assetAnswer(output);
  }

  /** The target of a redirect. Like a signed URL, it needs no token and refuses one. */
  #download(call: Call): Answer | Promise<Answer> {
    if (call.request.headers.authorization !== undefined) {
      throw new Refusal(400, 'Only one way of authorisation is allowed');
    }
    return this.#assetAnswer(this.#readyOutput(call));
  }

  #readyOutput(call: Call): Output {
    const flow = this.#flow(call);
    if (!flow.isTerminal(this.#clock.now())) {
      const status = this.#variation.earlyOutputs === 'not-found' ? 404 : 409;
      throw new Refusal(status, 'The flow is not in a terminal state');
    }
    const output = flow.outputs.find(({ assetId }) => assetId === call.assetId);
    if (output === undefined) throw new Refusal(404, 'There is no such asset');
    if (output.error !== undefined) throw new Refusal(404, output.error);
    return output;
  }

  async #assetAnswer({ mediaType, content }: Output): Promise<Answer> {
    const { assetLength, ...form } = this.#variation;
    const isJson = form.assetForm === 'json';
    const bytes = form.assetVaries ? ending(content, `#${++this.#downloads}`) : content;
    return {
      status: 200,
      headers: { 'content-type': isJson ? 'application/json' : mediaType },
      body: isJson ? await assetJson(mediaType, bytes, form) : bytes,
      isChunked: assetLength === 'chunked',
    };
  }

  /**
   * Reads a body and has `check` validate it. If there is no problem, runs the action that `check` returned. Otherwise
   * the inputs are dropped.
   */
  async #withBody(
    request: ServiceRequest,
    isLong: (path: JsonPath) => boolean,
    check: (body: Body, problem: Problem) => (() => Answer) | undefined,
  ): Promise<Answer> {
    const body = await readBody(request, isLong, this.#blobs, this.#variation);
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
    const durationMs =
      typeof this.#flowMs === 'number' ? this.#flowMs : this.#flowMs({ id: flow.id, template: flow.template.name });
    flow.start(this.#clock.now(), durationMs, () => this.#newId());
  }

  #flow({ flowId }: Call): Flow {
    const flow = this.flows.get(flowId);
    if (flow === undefined || flow.deleted) throw new Refusal(404, 'There is no such flow');
    return flow;
  }

  #requireState(flow: Flow, states: readonly State[]): void {
    const state = flow.state(this.#clock.now());
    if (!states.includes(state)) throw new Refusal(409, `This is not possible in the state ${state}`);
  }

  #record(flow: Flow): Record<string, unknown> {
    return flowRecord(flow, this.#clock.now(), this.#variation);
  }

  #unusedId(): string {
    for (;;) {
      const id = this.#newId();
      if (!this.flows.has(id)) return id;
    }
  }
}

/** The same bytes, followed by a text. */
function ending({ bytes, open }: Content, text: string): Content {
  const end = Buffer.from(text);
  return {
    bytes: bytes + end.length,
    async *open() {
      yield* open();
      yield end;
    },
  };
}
