/**
 * The HTTP door: one row per route, and what holds for all of them.
 *
 *   open      answers; every /v1 route needs the root token, a trigger the secret in its URL
 *   closing   no new connections; live streams and waiting claims end first, then what is in flight is answered, until the timeout
 *   closed    for good
 *
 * The door holds no state: everything is the bus's.
 */
import { type TypeBoxTypeProvider, TypeBoxValidatorCompiler } from '@fastify/type-provider-typebox'
import { type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from 'fastify'
import type { Bus } from '../bus.ts'
import { BusbarError, shown } from '../errors.ts'
import { answerBrokenRequest, discardRest } from './broken-request.ts'
import { decodeBody } from './event-body.ts'
import { idParams, listTopics, publishBody, readById } from './events.ts'
import { readinessCheck } from './health.ts'
import { followLive, liveQuery } from './live.ts'
import { LiveStreams } from './live-stream.ts'
import { operationRoutes, traceOf } from './operations.ts'
import { matchOf, matchQuery, queueRoutes } from './queues.ts'
import { acceptedTypes, expectedError, sendProblem, unsupportedType } from './reply.ts'
import { streamRoutes } from './streams.ts'
import { bearerCheck } from './token.ts'
import { addTriggerDoor, triggerRoutes } from './triggers.ts'
import { webhookRoutes } from './webhooks.ts'

export interface Door {
  readonly url: string
  close(options: { timeoutMs: number }): Promise<void>
}

export interface DoorOptions {
  bus: Bus
  host: string
  /** 0 = any free one. */
  port: number
  bodyMaxBytes: number
  rootToken: string
  /** How long a live reader may take nothing before it is cut. */
  stallMs?: number
  /** How often an idle live reader hears something. */
  keepAliveMs?: number
  /** How long a request may take to arrive. */
  requestMs?: number
}

type App = ReturnType<typeof createApp>

/** Listens; SETTING_INVALID when it cannot listen there. */
export async function openDoor(options: DoorOptions): Promise<Door> {
  const { bus, host, port } = options
  const streams = new LiveStreams()
  const ending = new AbortController()
  const app = createApp(options)
  let closing: Promise<void> | undefined
  addRules(app, options, () => closing !== undefined)
  addRoutes(app, options, streams, ending.signal)
  try {
    // For `localhost` Fastify opens a second server on ::1, whose connections could not be ended with the first's.
    await app.listen({ host: host === 'localhost' ? '127.0.0.1' : host, port })
  } catch (error) {
    await app.close()
    throw cannotListen(error as NodeJS.ErrnoException, host, port)
  }
  const url = app.listeningOrigin
  bus.telemetry.emit('http.started', { url })
  return {
    url,
    close({ timeoutMs }) {
      ending.abort()
      closing ??= closeApp(app, streams, timeoutMs)
      return closing
    },
  }
}

async function closeApp(app: App, streams: LiveStreams, timeoutMs: number): Promise<void> {
  streams.endAll()
  const timer = setTimeout(() => app.server.closeAllConnections(), timeoutMs)
  await app.close()
  clearTimeout(timer)
}

function cannotListen(error: NodeJS.ErrnoException, host: string, port: number): unknown {
  const problems: Record<string, string> = {
    EADDRINUSE: `http.port ${port} is already in use on ${host}: choose another with --http-port, or 0 for a free one`,
    EACCES: `http.port ${port} may not be used by this user: choose one above 1023`,
    EADDRNOTAVAIL: `http.host ${host} is not an address of this machine`,
    ENOTFOUND: `http.host ${host} is not a known name`,
  }
  const problem = problems[error.code ?? '']
  return problem === undefined ? error : BusbarError.of('SETTING_INVALID', { problems: [problem] }, error)
}

// A request line and its headers are a few hundred bytes: who takes longer is holding the connection, not sending.
const maxHeadersMs = 10_000

function createApp({ bodyMaxBytes, requestMs = 120_000 }: DoorOptions) {
  return fastify({
    bodyLimit: bodyMaxBytes,
    requestTimeout: requestMs,
    // Above the 60 s of common load balancers: the side that reuses a connection must not be the last to hear of its end.
    keepAliveTimeout: 72_000,
    routerOptions: { maxParamLength: 100 },
    return503OnClosing: false,
    http: {
      headersTimeout: Math.min(requestMs, maxHeadersMs),
      requestTimeout: requestMs,
      connectionsCheckingInterval: Math.min(requestMs, 2_000),
    },
    clientErrorHandler: answerBrokenRequest,
    frameworkErrors: (error, request, reply) => {
      sendProblem(reply, expectedError(error, request, { bodyMaxBytes }) ?? BusbarError.of('INTERNAL'))
    },
  })
    .withTypeProvider<TypeBoxTypeProvider>()
    .setValidatorCompiler(TypeBoxValidatorCompiler)
}

/** What holds for every request: how it is read, refused, counted and answered. */
function addRules(app: App, options: DoorOptions, isClosing: () => boolean): void {
  const { bus } = options
  // A body is read only where a route takes one, and only from who has the token.
  app.removeAllContentTypeParsers()
  app.addHook('onRoute', (route) => {
    if (route.bodyLimit !== undefined) route.bodyLimit = Math.min(route.bodyLimit, options.bodyMaxBytes)
  })
  app.addHook('onRequest', async (request, reply) => {
    reply.headers({ 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' })
    const startedAt = performance.now()
    reply.raw.once('finish', () => discardRest(request))
    reply.raw.once('close', () => countRequest(bus, request, reply, performance.now() - startedAt))
  })
  app.addHook('onSend', async (_request, reply) => {
    if (isClosing()) reply.header('connection', 'close')
  })
  app.setNotFoundHandler((request) => {
    const path = request.url.split('?', 1)[0]!.slice(0, 200)
    throw BusbarError.of('ROUTE_NOT_FOUND', { method: request.method, path })
  })
  app.setErrorHandler((error, request, reply) => sendProblem(reply, toOurs(options, request, error)))
}

function readText(request: FastifyRequest, body: Buffer | string, done: (error: Error | null, text?: string) => void) {
  const encoding = request.headers['content-encoding'] ?? 'identity'
  if (encoding.toLowerCase() !== 'identity') return done(unsupportedType(`with content encoding ${shown(encoding)}`))
  done(null, decodeBody(body as Buffer))
}

/** The one translation: what nobody expected is reported here and INTERNAL outside. */
function toOurs({ bus, bodyMaxBytes }: DoorOptions, request: FastifyRequest, error: unknown): BusbarError {
  // Routes that take a few values have a limit of their own.
  const limit = request.routeOptions.bodyLimit ?? bodyMaxBytes
  const expected = expectedError(error, request, { bodyMaxBytes: limit })
  if (!expected) reportFailure(bus, request, error)
  return expected ?? BusbarError.of('INTERNAL', undefined, error)
}

function reportFailure(bus: Bus, request: FastifyRequest, error: unknown): void {
  const { name, message, stack = '' } = error instanceof Error ? error : new Error(String(error))
  const at = stack.split('\n').find((line) => /^\s+at /.test(line))
  bus.telemetry.emit('http.failed', {
    method: request.method,
    route: routeOf(request),
    problem: `${name}: ${message}`.slice(0, 300),
    at: at?.trim(),
  })
}

/** The template, never the path: a path may hold anything. */
const routeOf = (request: FastifyRequest): string => request.routeOptions.url ?? '(none)'

function countRequest(bus: Bus, request: FastifyRequest, reply: FastifyReply, tookMs: number): void {
  bus.telemetry.emit('http.request', {
    method: request.method,
    route: routeOf(request),
    // 499, as nginx has it: the client went away before there was an answer.
    status: reply.raw.headersSent ? reply.raw.statusCode : 499,
    ms: Math.round(tookMs),
  })
}

function addRoutes(app: App, options: DoorOptions, streams: LiveStreams, ending: AbortSignal): void {
  const { bus, stallMs = 30_000, keepAliveMs = 15_000 } = options
  const readiness = readinessCheck(bus)
  app.get('/livez', async () => ({ status: 'ok' }))
  app.get('/readyz', async (request, reply) => {
    const problem = await readiness()
    return problem === undefined ? { status: 'ok' } : sendProblem(reply, toOurs(options, request, problem), 503)
  })

  const checkToken = bearerCheck(options.rootToken)
  const live = {
    bus,
    times: { stallMs, keepAliveMs },
    streams,
    failed: (request: FastifyRequest, error: unknown) => reportFailure(bus, request, error),
  }
  const v1 = async (routes: FastifyInstance) => {
    routes.addHook('onRequest', async (request) => checkToken(request.headers.authorization))
    routes.addContentTypeParser(acceptedTypes, { parseAs: 'buffer' }, readText)
    const typed = routes.withTypeProvider<TypeBoxTypeProvider>()
    typed.post('/events', (request, reply) => publishBody(bus, request, reply))
    typed.get('/events/:id', { schema: { params: idParams } }, (request, reply) =>
      readById(bus, request.params.id, reply),
    )
    typed.get('/events/:id/trace', { schema: { params: idParams } }, (request, reply) =>
      traceOf(bus, request.params.id, reply),
    )
    typed.get('/topics', () => listTopics(bus))
    typed.get('/workers', () => bus.workers())
    routes.register(streamRoutes(bus), { prefix: '/streams' })
    routes.register(queueRoutes(bus, ending), { prefix: '/queues' })
    routes.register(webhookRoutes(bus), { prefix: '/webhooks' })
    routes.register(operationRoutes(bus, ending), { prefix: '/operations' })
    routes.register(triggerRoutes(bus), { prefix: '/triggers' })
    typed.get('/match', { schema: { querystring: matchQuery } }, (request) => matchOf(bus, request.query))
    // A HEAD of it would be a reader that reads nothing.
    typed.get('/live', { schema: { querystring: liveQuery }, exposeHeadRoute: false }, (request, reply) =>
      followLive(live, request, reply),
    )
  }
  app.register(v1, { prefix: '/v1' })
  app.register(async (open) => addTriggerDoor(open, bus, ending))
}
