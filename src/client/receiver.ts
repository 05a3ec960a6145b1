/**
 * Receives webhooks: verifies who sent them, handles each event once and, if asked to, in order.
 *
 *   request ─▶ size ─▶ content type ─▶ signature and time ─▶ batch ─▶ Once ─▶ handler
 *
 * Nothing is parsed before its sender is known. 204 says that every event of the batch is handled; any other answer makes the sender try the
 * same batch again.
 */
import { BusbarError, shown } from '../errors.ts'
import { signatureHeaders, verify } from '../webhook-signature.ts'
import { type Answer, handled, refusalOf, refused } from './answer.ts'
import { type Batch, checkContentType, readBatch } from './batch.ts'
import { checkLength } from './body.ts'
import { type Door, type HeadersLike, headerOf } from './door.ts'
import { type FastifyPlugin, fastifyPlugin } from './fastify.ts'
import { type NodeListener, nodeListener } from './node.ts'
import { Once, type ReceiveHandler } from './once.ts'
import { type ReceiverOptions, readOptions, type Settings } from './options.ts'
import { type WebHandler, webHandler } from './web.ts'

export interface Receiver {
  /** For `http.createServer` and `app.post` of Express. */
  node(handler: ReceiveHandler): NodeListener
  /** For `app.register` of Fastify: a plugin with this one route. */
  fastify(path: string, handler: ReceiveHandler): FastifyPlugin
  /** For servers whose requests are those of the Web. */
  web(handler: ReceiveHandler): WebHandler
  /** For any other server: what to answer. Never rejects. */
  answer(headers: HeadersLike, body: string | Uint8Array, handler: ReceiveHandler): Promise<Answer>
  /** By hand: the batch, if it is signed; nothing is handled or remembered. The body as it came, not parsed. */
  verify(headers: HeadersLike, body: string | Uint8Array): Promise<Batch>
}

export function receiver(options: ReceiverOptions): Receiver {
  const settings = readOptions(options)
  const once = new Once(settings.seen, settings.guard)

  function doorOf(handler: ReceiveHandler): Door {
    checkHandler(handler)
    return {
      maxBytes: settings.maxBytes,
      async handle(headers, body) {
        await once.handle(verifiedBatch(settings, headers, body), handler)
        return handled()
      },
      refuse(error) {
        const refusal = refusalOf(error)
        // Of its own: what it throws is nothing that the sender could mend, nor worth the process.
        queueMicrotask(() => tellError(settings, refusal))
        return refused(refusal)
      },
    }
  }

  return {
    node: (handler) => nodeListener(doorOf(handler)),
    fastify: (path, handler) => fastifyPlugin(path, doorOf(handler)),
    web: (handler) => webHandler(doorOf(handler)),
    async answer(headers, body, handler) {
      const door = doorOf(handler)
      return door.handle(headers, body).catch(door.refuse)
    },
    verify: async (headers, body) => verifiedBatch(settings, headers, body),
  }
}

function tellError({ onError }: Settings, refusal: BusbarError): void {
  try {
    // One that is async rejects later.
    Promise.resolve(onError(refusal) as unknown).catch(warnOf)
  } catch (error) {
    warnOf(error)
  }
}

const warnOf = (error: unknown): void => process.emitWarning(`onError threw: ${String(error)}`, 'BusbarWarning')

function verifiedBatch(
  { secrets, toleranceMs, maxBytes }: Settings,
  headers: HeadersLike,
  body: string | Uint8Array,
): Batch {
  checkLength(body, maxBytes)
  const contentType = headerOf(headers, 'content-type')
  checkContentType(contentType)
  const signed = {
    id: headerOf(headers, signatureHeaders.id),
    timestamp: headerOf(headers, signatureHeaders.timestamp),
    signature: headerOf(headers, signatureHeaders.signature),
    body,
  }
  const { id } = verify(signed, { secrets, toleranceMs, nowMs: Date.now() })
  return readBatch({ id, contentType, body })
}

function checkHandler(handler: unknown): void {
  if (typeof handler === 'function') return
  const problem = 'must be a function that is called with each event'
  throw BusbarError.of('PARAMETER_INVALID', { name: 'handler', value: shown(handler), problem })
}
