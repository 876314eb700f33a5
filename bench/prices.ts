/**
 * Prices of AWS in us-east-1, in US dollars, without free tiers and volume discounts.
 * https://aws.amazon.com/lambda/pricing/ https://aws.amazon.com/s3/pricing/ https://aws.amazon.com/sqs/pricing/
 * https://aws.amazon.com/eventbridge/pricing/ (the scheduler too) https://aws.amazon.com/secrets-manager/pricing/
 * https://aws.amazon.com/cloudwatch/pricing/ https://aws.amazon.com/ec2/pricing/on-demand/ (data transfer)
 */
export const PRICES_DATE = '2026-06';

export const PRICES = {
  lambdaGbSecondArm64: 0.0000133334,
  lambdaRequest: 0.2e-6,
  /** PUT, COPY, POST and LIST. */
  s3Write: 0.005e-3,
  /** GET and HEAD. */
  s3Read: 0.0004e-3,
  sqsRequest: 0.4e-6,
  eventBridgeEvent: 1e-6,
  schedulerInvocation: 1e-6,
  secretRead: 5e-6,
  secretMonth: 0.4,
  /** Each metric of an alarm, a month. */
  alarmMetricMonth: 0.1,
  metricMonth: 0.3,
  dashboardMonth: 3,
  s3GbMonth: 0.023,
  logsGb: 0.5,
  /** Out to the internet, to the flow service. Traffic in is free. */
  transferOutGb: 0.09,
} as const;

/** What a request costs, by service and operation. S3's DELETE is free, and so is the end of a multipart upload. */
export const REQUEST_PRICES = {
  s3: {
    GetObject: PRICES.s3Read,
    HeadObject: PRICES.s3Read,
    PutObject: PRICES.s3Write,
    ListObjectsV2: PRICES.s3Write,
    ListObjectVersions: PRICES.s3Write,
    CreateMultipartUpload: PRICES.s3Write,
    UploadPart: PRICES.s3Write,
    CompleteMultipartUpload: PRICES.s3Write,
    AbortMultipartUpload: 0,
    DeleteObject: 0,
  },
  queue: { SendMessage: PRICES.sqsRequest, ReceiveMessage: PRICES.sqsRequest, DeleteMessage: PRICES.sqsRequest },
  events: { PutEvents: PRICES.eventBridgeEvent },
  secret: { GetSecretValue: PRICES.secretRead },
} as const satisfies Readonly<Record<string, Readonly<Record<string, number>>>>;
