import type { ServiceRequest } from './transport.ts';

export type Operation =
  | 'createFlow'
  | 'listFlows'
  | 'getFlow'
  | 'changeFlow'
  | 'deleteFlow'
  | 'addInput'
  | 'listOutputs'
  | 'getAsset'
  | 'listTemplates'
  | 'download'
  | 'unknown';

/** A request with its operation and the ids in its path. */
export interface Call {
  readonly request: ServiceRequest;
  readonly path: string;
  readonly query: URLSearchParams;
  /** The path begins with `/flows`. */
  readonly isUnderFlows: boolean;
  readonly operation: Operation;
  /** Empty if the path has none. */
  readonly flowId: string;
  /** Empty if the path has none. */
  readonly assetId: string;
}

/** Finds the operation of a request. */
export function callOf(request: ServiceRequest, basePath: string): Call {
  // Not parsed as a URL: that would take an id of `..` for a step up.
  const [path = '', query = ''] = request.url.split(/\?(.*)/s);
  const parts = path.startsWith(`${basePath}/`) ? path.slice(basePath.length + 1).split('/') : [];
  const [first = '', second = '', third = '', fourth = ''] = parts.map(decoded);
  const call = (operation: Operation, flowId = '', assetId = ''): Call => ({
    request,
    path,
    query: new URLSearchParams(query),
    isUnderFlows: first === 'flows',
    operation,
    flowId,
    assetId,
  });

  switch (`${request.method} ${parts.length}`) {
    case 'GET 1':
      if (first === 'flows') return call('listFlows');
      if (first === 'templates') return call('listTemplates');
      break;
    case 'POST 1':
      if (first === 'flows') return call('createFlow');
      break;
    case 'GET 2':
      if (first === 'flows') return call('getFlow', second);
      if (second === 'outputs') return call('listOutputs', first);
      break;
    case 'PATCH 2':
      if (first === 'flows') return call('changeFlow', second);
      break;
    case 'DELETE 2':
      if (first === 'flows') return call('deleteFlow', second);
      break;
    case 'GET 3':
      if (first === 'flows' && third === 'outputs') return call('listOutputs', second);
      if (first === 'downloads') return call('download', second, third);
      break;
    case 'POST 3':
      if (first === 'flows' && third === 'inputs') return call('addInput', second);
      break;
    case 'GET 4':
      if (first === 'flows' && third === 'outputs') return call('getAsset', second, fourth);
      break;
  }
  return call('unknown');
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
