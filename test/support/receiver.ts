/** A webhook's receiver on loopback: records every request, and answers as it is told to. Closed when the test ends. */
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { onTestFinished } from 'vitest'

export interface Received {
  path: string
  headers: IncomingHttpHeaders
  body: string
  /** The id of its batch. */
  id: string
  /** Numbers that the events were published with. */
  numbers: number[]
  at: number
  status: number | undefined
}

/** A status, or what is done with the response. */
export type Answer = number | ((response: ServerResponse, received: Received) => void)

export interface Receiver {
  url: string
  received: Received[]
  /** For the next requests, in order; then `otherwise`. */
  next: Answer[]
  otherwise: Answer
  /** Of those that were answered with 2xx. */
  delivered(): number[]
  /** Ends every connection. */
  cut(): void
  /** How many requests were under way at once, at most, and are now. */
  most: number
  open: number
}

export async function startReceiver(): Promise<Receiver> {
  const receiver: Receiver = {
    ...{ url: '', received: [], next: [], otherwise: 204, most: 0, open: 0 },
    cut: () => server.closeAllConnections(),
    delivered: () =>
      receiver.received.flatMap(({ status = 0, numbers }) => (status >= 200 && status < 300 ? numbers : [])),
  }
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    receiver.open += 1
    receiver.most = Math.max(receiver.most, receiver.open)
    response.on('close', () => {
      receiver.open -= 1
    })
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      const body = Buffer.concat(chunks).toString()
      const received: Received = {
        ...{ path: request.url!, headers: request.headers, body, id: String(request.headers['webhook-id']) },
        ...{ numbers: numbersIn(body), at: performance.now(), status: undefined },
      }
      receiver.received.push(received)
      const answer = receiver.next.shift() ?? receiver.otherwise
      if (typeof answer === 'function') return answer(response, received)
      received.status = answer
      response.writeHead(answer).end(answer === 204 ? undefined : `answer ${answer}`)
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  receiver.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return receiver
}

const numbersIn = (body: string): number[] => [...body.matchAll(/"n":(\d+)/g)].map(([, n]) => Number(n))

/** What a bus needs to be told to post to it. */
export const toLoopback = { allow: ['127.0.0.0/8'], allowHttp: true } as const
