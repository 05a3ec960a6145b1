/**
 * `busbar/client`: for whoever receives what Busbar sends. It knows neither Redis nor a server, and can be used where the
 * bus is not.
 */
export type { Answer } from './client/answer.ts'
export type { Batch } from './client/batch.ts'
export type { HeadersLike } from './client/door.ts'
export type { FastifyLike, FastifyPlugin } from './client/fastify.ts'
export type { SeenStore } from './client/memory.ts'
export type { NodeListener, NodeRequest } from './client/node.ts'
export type { EventContext, ReceiveHandler } from './client/once.ts'
export type { ReceiverOptions } from './client/options.ts'
export { type Receiver, receiver } from './client/receiver.ts'
export type { WebHandler } from './client/web.ts'
export { BusbarError, type ErrorCode } from './errors.ts'
export type { Event } from './event.ts'
export type { OrderGuardOptions, OrderStore } from './order-guard.ts'
export { type Signed, signedHeaders } from './webhook-signature.ts'
