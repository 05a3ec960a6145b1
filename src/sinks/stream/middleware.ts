/** Middleware: async generators around the events, the first of the list next to the source. */
import type { Event } from '../../event.ts'
import type { Middleware, ProcessorContext } from './options.ts'

export type Given = Event | readonly Event[]
export type Step = IteratorResult<Given, undefined>
export type Pull = () => Promise<Step>

export const ended: Step = { done: true, value: undefined }

/** The events as they come out of the middleware. */
export class Chain {
  readonly #iterator: AsyncIterator<Given>

  constructor(use: readonly Middleware[], context: ProcessorContext, pull: Pull) {
    const source: AsyncIterable<Given> = { [Symbol.asyncIterator]: () => ({ next: pull }) }
    const all = use.reduce((events, middleware) => middleware(events, context), source)
    this.#iterator = all[Symbol.asyncIterator]()
  }

  next(): Promise<Step> {
    return this.#iterator.next() as Promise<Step>
  }

  /** The handler has ended: a failure is thrown at the place where the middleware gave the event. */
  async end(failure?: { error: unknown }): Promise<void> {
    // What the middleware makes of it is its own business: the events' fate is the handler's word.
    if (failure) await this.#iterator.throw?.(failure.error).catch(() => undefined)
    else await this.#iterator.return?.().catch(() => undefined)
  }
}
