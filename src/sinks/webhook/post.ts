/**
 * Sends webhooks: one POST, bounded in everything that a receiver could make long or large, and what became of it as a value.
 *
 * Nothing is repeated, no redirect is followed, nothing is unpacked. Connections are kept for some seconds and only for as many endpoints as
 * `maxEndpoints`: beyond that those that have not been used for longest are closed, unless something is under way there.
 */
import { Attempt, type AttemptLimits, type Posted, type PostRequest } from './attempt.ts'
import { closed, Endpoint, type EndpointLimits } from './endpoint.ts'
import type { Guard } from './guard.ts'
import { problemOf } from './problem.ts'

export type { Posted, PostRequest }

export interface PosterOptions {
  guard: Guard
  /** To look the name up, connect and agree on TLS. Default 2 s. */
  connectMs?: number
  /** From having a connection to status and headers, and until it has one. Default 20 s. */
  totalMs?: number
  /** For the body after that. Default 2 s. */
  bodyMs?: number
  /** Of the answer's body; the rest is cut off. Default 16 kB. */
  maxResponseBytes?: number
  /** Unless a request says more. Default 8. */
  connectionsPerEndpoint?: number
  /** Origins whose connections are kept. Default 1,000. */
  maxEndpoints?: number
  /** How long a connection without requests is kept. Default 4 s. */
  keepAliveMs?: number
  /** One in constant use is made anew after this: a receiver that has moved would not be noticed otherwise. Default 60 s. */
  longestUseMs?: number
  /** Wall time in ms. */
  now?: () => number
}

interface Target {
  origin: string
  path: string
}

const mostChecked = 10_000

export class Poster {
  readonly #guard: Guard
  readonly #attemptLimits: AttemptLimits
  readonly #endpointLimits: EndpointLimits
  readonly #maxEndpoints: number
  /** By origin; the first one has not been used for longest. */
  readonly #endpoints = new Map<string, Endpoint>()
  /** By URL: what its text says never changes. Where its name leads to is judged for each connection. */
  readonly #checked = new Map<string, Target>()
  #isClosed = false

  constructor(options: PosterOptions) {
    const { totalMs = 20_000, bodyMs = 2_000, maxResponseBytes = 16_384, now = Date.now } = options
    const { connectMs = 2_000, connectionsPerEndpoint: connections = 8 } = options
    const { keepAliveMs = 4_000, longestUseMs = 60_000, maxEndpoints = 1_000 } = options
    this.#guard = options.guard
    this.#attemptLimits = { totalMs, bodyMs, maxResponseBytes, now }
    this.#endpointLimits = { connectMs, connections, keepAliveMs, longestUseMs }
    this.#maxEndpoints = maxEndpoints
  }

  /** Origins to which there are connections now. */
  get endpoints(): number {
    return this.#endpoints.size
  }

  post(request: PostRequest): Promise<Posted> {
    if (this.#isClosed) return failed(closed)
    if (request.signal?.aborted) return failed('stopped before it was sent')
    let target: Target
    try {
      target = this.#checked.get(request.url) ?? this.#check(request.url)
    } catch (error) {
      return failed(problemOf(error))
    }
    const { origin, path } = target
    return new Promise((resolve) =>
      this.#endpoint(origin).send(new Attempt(path, request, this.#attemptLimits, resolve), request.connections),
    )
  }

  #check(text: string): Target {
    const { origin, pathname, search } = this.#guard.checkUrl(text)
    if (this.#checked.size >= mostChecked) this.#checked.clear()
    const target = { origin, path: pathname + search }
    this.#checked.set(text, target)
    return target
  }

  /** What is under way ends; nothing keeps the process alive after it. */
  async close(): Promise<void> {
    this.#isClosed = true
    await Promise.all([...this.#endpoints.values()].map((endpoint) => endpoint.close()))
  }

  #endpoint(origin: string): Endpoint {
    const endpoint = this.#endpoints.get(origin) ?? this.#newEndpoint(origin)
    this.#endpoints.delete(origin)
    this.#endpoints.set(origin, endpoint)
    return endpoint
  }

  #newEndpoint(origin: string): Endpoint {
    if (this.#endpoints.size >= this.#maxEndpoints) this.#closeOldest()
    return new Endpoint(origin, this.#guard, this.#endpointLimits, (endpoint) => {
      if (this.#endpoints.get(origin) === endpoint) this.#endpoints.delete(origin)
    })
  }

  #closeOldest(): void {
    for (const [origin, endpoint] of this.#endpoints)
      if (endpoint.isIdle) {
        this.#endpoints.delete(origin)
        void endpoint.close()
        return
      }
  }
}

const failed = (problem: string): Promise<Posted> => Promise.resolve({ kind: 'failed', problem, tookMs: 0 })
