terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }
  }
}

resource "aws_cloudformation_stack" "this" {
  name         = var.stack
  template_url = local.template_url
  capabilities = ["CAPABILITY_IAM"]
  tags         = var.tags

  # Its buckets hold files and receipts.
  lifecycle {
    prevent_destroy = true
  }
}
